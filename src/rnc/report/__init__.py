"""One page that shows what runs have learned: `write_report`."""

from rnc.report.report import write_report

__all__ = ["write_report"]
