"""The demo that the clients run against: where it is, how its upstreams are switched, how tests are run."""

import base64
import json
import os
import urllib.request

BASE_URL = os.environ["FOREBAY_BASE_URL"]
TOKEN = os.environ["FOREBAY_CALLER_TOKEN"]
SIMULATOR = os.environ["FOREBAY_SIMULATOR_URL"]
TEXT = ["small", "medium", "large"]
OTHERS = ["image", "audio", "embedding", "rerank", "moderation", "speech2text"]
MODELS = TEXT + [f"{capability}-{name}" for capability in OTHERS for name in ["one", "two"]]
# A picture of one grey dot.
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)
PNG = b"\x89PNG\r\n"


def control(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{SIMULATOR}{path}", data, headers, method=method)
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def behave(behaviour, models=MODELS):
    for model in models:
        control("PUT", f"/control/{model}", {"behaviour": behaviour})


def run(tests):
    """Runs each against upstreams that behave; how many failed."""
    failed = 0
    for test in tests:
        behave("ok")
        try:
            test()
            print(f"ok: {test.__name__}")
        except Exception as error:
            failed += 1
            print(f"FAILED: {test.__name__}: {type(error).__name__}: {error}")
    behave("ok")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return failed
