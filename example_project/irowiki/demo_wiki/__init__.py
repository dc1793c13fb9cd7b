"""A wiki to practice on: MediaWiki's API, with a rate limit."""

from irowiki.demo_wiki.content import PAGES, WikiPage
from irowiki.demo_wiki.files import FILES, WikiFile
from irowiki.demo_wiki.server import DemoWiki

__all__ = ["FILES", "PAGES", "DemoWiki", "WikiFile", "WikiPage"]
