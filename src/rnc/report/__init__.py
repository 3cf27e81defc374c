"""Show the results of runs: `write_report` as a page, `write_figures` for papers."""

from rnc.report.report import write_figures, write_report

__all__ = ["write_figures", "write_report"]
