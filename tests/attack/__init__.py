"""Fuzzers: seeded attacks on the product, few of each in CI and as many as you like on demand.

    make attack                                      all of them, at least 10,000 cases
    pytest tests/attack --attack-cases 5000          5,000 cases of each fuzzer of share 1
    pytest tests/attack -k loss --attack-cases 1 --attack-first 1234     case 1234 of one, alone

At the end of a run stands a table with a line per fuzzer. What it counts:

    right        the outcome was checked and is right
    refused      the product said what was wrong with the input
    silent       a wrong outcome without a word
    tracebacks   an exception that is not a message to a user
    lost         work of the user is gone, or is mixed up with other work

Any of the last three fails the test, which names the cases and how to repeat one.

A fuzzer is a function of a random generator, which makes one case, tries it and returns "right" or
"refused", or raises `Silent` or `Lost` with what was wrong. Any other exception is a traceback. So
the fuzzer itself decides which exceptions or exit codes are refusals, and looks at their text. Each
case has a generator of its own: draw everything from it, so that the number of a case repeats it.

    def try_table(rng: np.random.Generator, folder: Path) -> Verdict: ...

    @pytest.mark.attack("tables", share=0.2)
    def test_tables(attack: Attack, tmp_path: Path) -> None:
        attack(lambda rng: try_table(rng, tmp_path))

Kills have no seeds: with --attack-cases, however many, a command is killed at every change of a
file that it makes, one after another (`tracer`, `kills_cases`).

`share` makes slow cases fewer: it multiplies --attack-cases. `ci` is the number of cases without
that option; keep it to a few seconds. Put cases in NAME_cases.py and the test in test_NAME.py.
"""
