"""A wiki to practise on: it speaks MediaWiki's API and refuses who is too fast."""

from irowiki.demo_wiki.content import PAGES, WikiPage
from irowiki.demo_wiki.files import FILES, WikiFile
from irowiki.demo_wiki.server import DemoWiki

__all__ = ["FILES", "PAGES", "DemoWiki", "WikiFile", "WikiPage"]
