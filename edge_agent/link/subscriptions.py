"""What a session is subscribed to, and changes on their way to the broker."""

import threading
from collections import deque
from collections.abc import Sequence

from edge_agent.link.events import Subscription


class SubscriptionBook:
    """Wanted subscriptions, and requests in the order they were made. Usable from any thread."""

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self._lock = threading.Lock()
        self._wanted = {one.filter: one for one in subscriptions}
        self._requests: deque[Subscription | str] = deque()

    def add(self, subscription: Subscription) -> None:
        """Want it from now on; repeating it sends it again."""
        with self._lock:
            self._wanted[subscription.filter] = subscription
            self._requests.append(subscription)

    def remove(self, topic_filter: str) -> None:
        """Want it no more."""
        with self._lock:
            self._wanted.pop(topic_filter, None)
            self._requests.append(topic_filter)

    def renew(self) -> list[Subscription]:
        """All that are wanted; open requests are part of it."""
        with self._lock:
            self._requests.clear()
            return list(self._wanted.values())

    def take(self) -> list[Subscription | str]:
        """The open requests: a subscription to make or a filter to leave."""
        with self._lock:
            requests = list(self._requests)
            self._requests.clear()
            return requests
