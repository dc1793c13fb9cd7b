"""What the add-on tells others, by Scrapy's signals.

Connect as to Scrapy's own: ``crawler.signals.connect(receiver, signals.slot_paused)``.
Receivers may take any of the arguments that a signal is sent with.
"""

from __future__ import annotations

# A refusal, a timeout or growing latency has made a slot slower.
# Sent with slot, old_rate, new_rate, reason.
slot_slowed = object()

# A slot is paused, because its host or the user wants it. Sent with slot, seconds,
# reason.
slot_paused = object()

# The first request after such a pause was sent. Sent with slot.
slot_resumed = object()

# A slot has found its place just under the host's limit, or at the highest rate that
# the settings allow. Sent with slot, rate; again if the place changes.
slot_settled = object()
