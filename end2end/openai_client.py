"""OpenAI's own Python client against Forebay: whole, streamed, and with its retries on."""

import json
import os
import sys
import urllib.request

import openai

BASE_URL = os.environ["FOREBAY_BASE_URL"]
TOKEN = os.environ["FOREBAY_CALLER_TOKEN"]
SIMULATOR = os.environ["FOREBAY_SIMULATOR_URL"]
MESSAGES = [{"role": "user", "content": "hello"}]

# The client's own retries are on, as they are wherever it is used.
client = openai.OpenAI(base_url=f"{BASE_URL}/v1", api_key=TOKEN)


def control(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{SIMULATOR}{path}", data, headers, method=method)
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def behave(behaviour):
    for model in ["small", "medium", "large"]:
        control("PUT", f"/control/{model}", {"behaviour": behaviour})


def asked():
    models = control("GET", "/control")["models"]
    return sum(models[name]["visits"]["requests"] for name in ["small", "medium", "large"] if name in models)


def whole():
    answer = client.chat.completions.create(model="main_text", messages=MESSAGES, max_tokens=64)
    assert answer.choices[0].message.content.startswith("Hello from "), answer
    assert answer.model == "main_text" and answer.object == "chat.completion", answer
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer
    assert answer._request_id and answer.id.endswith(answer._request_id), answer


def streamed():
    with client.chat.completions.create(
        model="main_text", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.startswith("Hello from "), text
    assert chunks[-1].usage.completion_tokens == 4, chunks[-1]
    assert {chunk.model for chunk in chunks} == {"main_text"}


def a_stream_that_dies_raises():
    behave("cut-content")
    try:
        list(client.chat.completions.create(model="main_text", messages=MESSAGES, stream=True))
    except openai.APIError as error:
        assert error.code == "upstream_failed", error
    else:
        raise AssertionError("a broken stream ended as if it were whole")


def m9_an_unknown_outcome_is_sent_once():
    behave("502")
    before = asked()
    try:
        client.chat.completions.create(model="main_text", messages=MESSAGES)
    except openai.InternalServerError as error:
        assert (error.status_code, error.code) == (504, "outcome_unknown"), error
    else:
        raise AssertionError("an unknown outcome was answered")
    assert asked() == before + 1, "the client sent it again"


def errors_are_its_own():
    for call, kind, code in [
        (lambda: client.chat.completions.create(model="nope", messages=MESSAGES), openai.NotFoundError, "not_found"),
        (lambda: client.chat.completions.create(model="main_text", messages=[]), openai.BadRequestError, "invalid_request"),
        (lambda: client.with_options(api_key="fb_wrong").models.list(), openai.AuthenticationError, "unauthorized"),
    ]:
        try:
            call()
        except kind as error:
            assert error.code == code, error
        else:
            raise AssertionError(f"no {kind.__name__}")


def models():
    names = [model.id for model in client.models.list()]
    assert "main_text" in names, names


def main():
    passed = 0
    for test in [whole, streamed, models, errors_are_its_own, a_stream_that_dies_raises, m9_an_unknown_outcome_is_sent_once]:
        behave("ok")
        test()
        print(f"ok: {test.__name__}")
        passed += 1
    behave("ok")
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
