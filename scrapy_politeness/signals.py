"""The signals that the add-on sends.

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

# A slot has settled just under the host's limit, at the rate of its quota headers, or
# at the highest rate that the settings allow. Sent with slot, rate; again if that
# changes.
slot_settled = object()

# A slot was stopped, because its host does not want this crawler. Sent with slot,
# reason.
slot_blocked = object()
