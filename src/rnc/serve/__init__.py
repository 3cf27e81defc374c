"""`rnc serve`: a run behind a page and a JSON endpoint (extra: serve).

limits.py   what one request may cost, and how one that costs more is refused
uploads.py  uploaded bytes -> rows for the model; nothing is written, no path is ever opened
served.py   the model of a run with all that it says beside a prediction
worker.py   one thread that calls the model, for all requests that wait at once
replies.py  the JSON that comes back, and its schema
pictures.py small pictures of the training samples that are shown as neighbours
app.py      the ASGI application: routes, limits, errors
page.py     the page, from page.html, page.css and page.js
server.py   binds a port and runs until Ctrl-C
"""
