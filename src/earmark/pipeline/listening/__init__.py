"""Listening: queues are drawn, the page is served, and what raters said is put to use."""
