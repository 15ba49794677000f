"""Render stored tables as a folder of HTML pages that opens from disk, without a server or network access.

The modules of this package select the content of pages, with one module per type of page. `templates/` and `assets/`
define the layout. The package does not open the store; it reads tables with a `Reader`. Texts of transcripts are
untrusted: the templates always escape them.
"""

from agent_eval.report.html.site import Served, Site, Written, page_at, write_report
from agent_eval.report.html.tables import Reader

__all__ = ["Reader", "Served", "Site", "Written", "page_at", "write_report"]
