"""Render stored tables as a folder of HTML pages that opens from disk, without a server or a network.

Frames in, files out: what a page says is chosen here (a module per kind of page), how it looks is defined in
`templates/` and `assets/`. Nothing here opens the store; tables come through a `Reader`. Texts of transcripts are
hostile: they reach a page only through the templates' autoescaping, never as markup.
"""

from agent_eval.report.html.folder import ReportFolderError
from agent_eval.report.html.site import Served, Site, Written, page_at, write_report
from agent_eval.report.html.tables import Reader

__all__ = ["Reader", "ReportFolderError", "Served", "Site", "Written", "page_at", "write_report"]
