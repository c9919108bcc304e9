"""Publish and subscribe: events under topics, for all subscribers that are interested in them.

``topics.py`` is the grammar, ``trie.py`` finds the patterns that a topic matches, ``event.py`` is what a reader gets,
``batch.py`` how events travel, ``interest.py`` what a subscription asks for, ``table.py`` all of a member's
subscriptions, ``backlog.py`` the events that wait for one of them. None of it does I/O;
``runtime/styles/topics/pubsub.py`` puts it on groups.
"""
