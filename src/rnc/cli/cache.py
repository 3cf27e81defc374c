"""Commands that list the image cache and clear it."""

import time
from typing import Annotated

import typer

from rnc.cli.terminal import friendly, stdout

_DAY = 24 * 3600

cache = typer.Typer(rich_markup_mode="markdown")


@cache.callback(invoke_without_command=True)
def list_cache(context: typer.Context) -> None:
    """List the cache of decoded images, or clear it.

    For instance:

        rnc cache

        rnc cache clear --older-than 30

        rnc cache clear faces-256-0a1b2c3d4e5f6071

    Image files are decoded once per size, and later runs read the pixels from the cache. It holds
    20 GB, or as many as the environment variable RNC_CACHE_GB says; the entries that were unused
    for longest are deleted first. It is safe to clear: the next run decodes the files again.
    """
    if context.invoked_subcommand is not None:
        return
    from rnc.data.cache_entries import cache_entries, cache_limit, default_cache
    from rnc.data.feature_cache import feature_cache, feature_entries

    with friendly():
        folder, limit = default_cache(), cache_limit()
        entries = cache_entries(folder)
    out = stdout(highlight=False, soft_wrap=True)
    for entry in entries:
        pixels, age = "x".join(map(str, entry.shape[1:])), _ago(time.time() - entry.last_use)
        out.print(entry.name, style="bold")
        about = f"{entry.shape[0]:,} images of {pixels}, {_bytes(entry.size)}, last used {age}"
        out.print(f"  {about}, from {entry.source}")
    total = sum(entry.size for entry in entries)
    out.print(f"{_bytes(total)} of {_bytes(limit)} in {folder}")
    if features := feature_entries():
        kept = f"Features of frozen encoders: {_sets(len(features))}"
        size = sum(entry.size for entry in features)
        out.print(f"{kept}, {_bytes(size)} of {_bytes(limit)} in {feature_cache()}")


@cache.command()
def clear(
    names: Annotated[
        list[str] | None, typer.Argument(help="names that `rnc cache` lists", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="clear the whole cache")] = False,
    older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", help="clear what was unused for this many days")
    ] = None,
) -> None:
    """Delete decoded images: by name, by age, or all of them.

    For instance:

        rnc cache clear --all

        rnc cache clear --older-than 30

    Runs that are reading them continue undisturbed. The next run decodes the files again. --all
    and --older-than clear cached features of frozen encoders, too.
    """
    from rnc.data.cache_entries import cache_entries, default_cache, delete_abandoned
    from rnc.data.feature_cache import feature_entries

    with friendly():
        folder = default_cache()
        entries = cache_entries(folder)
        if bool(names) + everything + (older_than is not None) != 1:
            raise ValueError(
                "Say what to clear: names from `rnc cache`, --older-than DAYS, or --all."
            )
        known = [entry.name for entry in entries]
        if unknown := [name for name in names or [] if name not in known]:
            held = ", ".join(known) or "nothing"
            raise ValueError(f"The cache has no {', '.join(unknown)}; it holds {held}.")
        features = [] if names else feature_entries()
        if names:
            entries = [entry for entry in entries if entry.name in names]
        elif older_than is not None:
            before = time.time() - older_than * _DAY
            entries = [entry for entry in entries if entry.last_use < before]
            features = [entry for entry in features if entry.last_use < before]
        for entry in entries:
            entry.delete()
        for kept in features:
            kept.file.unlink(missing_ok=True)
        delete_abandoned(folder)
    freed = sum(entry.size for entry in entries)
    stdout(highlight=False).print(f"Cleared {_sets(len(entries))} of images, {_bytes(freed)}.")
    if features:
        freed = sum(kept.size for kept in features)
        stdout(highlight=False).print(
            f"Cleared {_sets(len(features))} of features, {_bytes(freed)}."
        )


def _sets(count: int) -> str:
    return "1 set" if count == 1 else f"{count} sets"


def _bytes(size: float) -> str:
    """A size in bytes as text, in kB, MB or GB."""
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def _ago(seconds: float) -> str:
    """A time span as text, such as '3 h ago'."""
    if seconds < 3600:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3600:.0f} h ago" if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} days ago"
