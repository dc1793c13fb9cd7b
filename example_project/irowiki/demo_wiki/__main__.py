"""``python -m irowiki.demo_wiki``: look at the demo wiki in a browser."""

from irowiki.demo_wiki import DemoWiki

wiki = DemoWiki()
print(f"Demo wiki at {wiki.url} (Ctrl-C stops it)", flush=True)
try:
    wiki.serve_forever()
except KeyboardInterrupt:
    wiki.server_close()
