"""What the dashboard of `penstock serve` sees: the stages of the path, and a page for each part that runs here."""

from penstock.cli.serving.house_view.catalog_page import KeptCatalog
from penstock.cli.serving.house_view.documents_page import DocumentsView
from penstock.cli.serving.house_view.events import EventBoard
from penstock.cli.serving.house_view.figures import FigureHistory
from penstock.cli.serving.house_view.house import ServedHouse
from penstock.cli.serving.house_view.queue_page import QueueView

__all__ = ["DocumentsView", "EventBoard", "FigureHistory", "KeptCatalog", "QueueView", "ServedHouse"]
