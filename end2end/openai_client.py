"""OpenAI's own Python client against Forebay's demo: every endpoint, whole and streamed, with its retries on."""

import asyncio
import base64
import io
import sys
import time
import urllib.request
import uuid
import wave

import openai

from demo import BASE_URL, DOT, MODELS, OTHERS, PNG, TEXT, TOKEN, behave, control, run

MESSAGES = [{"role": "user", "content": "hello"}]

# The client's own retries are on, as they are wherever it is used.
client = openai.OpenAI(base_url=f"{BASE_URL}/v1", api_key=TOKEN)


def asked(names=MODELS):
    models = control("GET", "/control")["models"]
    return sum(models[name]["visits"]["requests"] for name in names if name in models)


def raises(kind, code, call):
    try:
        call()
    except kind as error:
        assert error.code == code, error
        return error
    raise AssertionError(f"no {kind.__name__}")


def request_id(answer, prefix):
    """Every answer has one, and it is what the answer's own id ends with."""
    assert answer._request_id and answer.id == f"{prefix}-{answer._request_id}", answer


def recording():
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 12000)
    return ("recording.wav", file.getvalue(), "audio/wav")


def download(url):
    assert url.startswith(f"{BASE_URL}/results/"), url
    with urllib.request.urlopen(url) as response:
        return response.headers["content-type"], response.read()


def chat():
    answer = client.chat.completions.create(model="main_text", messages=MESSAGES, max_tokens=64)
    assert answer.choices[0].message.content.startswith("Hello from "), answer
    assert answer.model == "main_text" and answer.object == "chat.completion", answer
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer
    assert answer.system_fingerprint is None, answer
    request_id(answer, "chatcmpl")


def chat_streamed():
    with client.chat.completions.create(
        model="main_text", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.startswith("Hello from "), text
    assert chunks[-1].usage.completion_tokens == 4, chunks[-1]
    assert {chunk.model for chunk in chunks} == {"main_text"}
    assert len({chunk.id for chunk in chunks}) == 1, chunks
    assert stream.response.headers["x-request-id"] in chunks[0].id


def chat_streamed_by_its_helper():
    with client.chat.completions.stream(model="main_text", messages=MESSAGES) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        whole = stream.get_final_completion()
    assert "".join(deltas) == whole.choices[0].message.content, whole
    assert whole.model == "main_text", whole


def chat_calls_tools():
    behave("tools", TEXT)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    answer = client.chat.completions.create(model="main_text", messages=MESSAGES, tools=[tool])
    call = answer.choices[0].message.tool_calls[0]
    assert (call.function.name, call.function.arguments) == ("f", '{"a":1}'), answer
    with client.chat.completions.create(model="main_text", messages=MESSAGES, tools=[tool], stream=True) as stream:
        deltas = [chunk.choices[0].delta.tool_calls for chunk in stream]
    pieces = [delta[0] for delta in deltas if delta]
    assert pieces[0].function.name == "f" and {piece.index for piece in pieces} == {0}, pieces
    assert "".join(piece.function.arguments for piece in pieces) == "".join(f"{n}," for n in range(20)), pieces


def completion():
    answer = client.completions.create(model="main_text", prompt="hello", max_tokens=64)
    assert answer.choices[0].text.startswith("Hello from "), answer
    assert answer.model == "main_text" and answer.object == "text_completion", answer
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, answer
    request_id(answer, "cmpl")


def completion_streamed():
    options = {"include_usage": True}
    with client.completions.create(model="main_text", prompt="hello", stream=True, stream_options=options) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert text.startswith("Hello from "), text
    assert {chunk.model for chunk in chunks} == {"main_text"}, chunks
    assert {chunk.object for chunk in chunks} == {"text_completion"}, chunks
    assert chunks[-1].usage.completion_tokens == 3, chunks[-1]


def response():
    answer = client.responses.create(model="main_text", input="hello", max_output_tokens=64)
    assert answer.output_text.startswith("Hello from "), answer
    assert (answer.model, answer.object, answer.status) == ("main_text", "response", "completed"), answer
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens, answer
    request_id(answer, "resp")


def response_streamed():
    with client.responses.create(model="main_text", input=MESSAGES, stream=True) as stream:
        events = list(stream)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text.startswith("Hello from "), text
    assert events[0].type == "response.created" and events[-1].type == "response.completed", events
    assert events[-1].response.output_text == text, events[-1]
    assert {event.response.model for event in events if hasattr(event, "response")} == {"main_text"}, events
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1, events


def response_streamed_by_its_helper():
    with client.responses.stream(model="main_text", input="hello") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        whole = stream.get_final_response()
    assert "".join(deltas) == whole.output_text, whole
    assert whole.model == "main_text" and whole.usage.output_tokens > 0, whole


def embeddings():
    # The client asks for base64 and decodes it by itself.
    texts = ["one", "two"]
    by_default = client.embeddings.create(model="main_embedding", input=texts)
    as_floats = client.embeddings.create(model="main_embedding", input=texts, encoding_format="float")
    for answer in [by_default, as_floats]:
        assert [item.index for item in answer.data] == [0, 1], answer
        assert all(isinstance(number, float) for item in answer.data for number in item.embedding), answer
        assert (answer.model, answer.object) == ("main_embedding", "list"), answer
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0, answer
        assert answer._request_id, answer
    for one, other in zip(by_default.data, as_floats.data):
        assert all(abs(a - b) < 1e-6 for a, b in zip(one.embedding, other.embedding, strict=True)), (one, other)
    short = client.embeddings.create(model="main_embedding", input=[1, 2, 3], dimensions=4)
    assert [len(item.embedding) for item in short.data] == [4], short


def image_by_its_address():
    answer = client.images.generate(model="main_image", prompt="a dot", n=2, response_format="url")
    assert len(answer.data) == 2 and answer.created > 0 and answer._request_id, answer
    for image in answer.data:
        kind, bytes = download(image.url)
        assert kind == "image/png" and bytes.startswith(PNG), (kind, bytes)


def image_inside():
    answer = client.images.generate(model="main_image", prompt="a dot", size="1024x1024", response_format="b64_json")
    assert base64.b64decode(answer.data[0].b64_json).startswith(PNG), answer
    assert answer.data[0].url is None, answer


def image_edited():
    answer = client.images.edit(model="main_image", image=DOT, prompt="a darker dot")
    assert len(answer.data) == 1, answer
    named = ("dot.png", DOT, "image/png")
    answer = client.images.edit(
        model="main_image", image=[named, named], mask=named, prompt="dots", n=2, response_format="b64_json"
    )
    assert all(base64.b64decode(image.b64_json).startswith(PNG) for image in answer.data), answer
    assert len(answer.data) == 2 and answer._request_id, answer


def speech():
    answer = client.audio.speech.create(model="main_audio", voice="alloy", input="Hello, this is spoken.")
    assert answer.response.headers["content-type"] == "audio/mpeg", answer.response.headers
    assert answer.response.headers["x-request-id"], answer.response.headers
    assert answer.content.startswith(b"\xff\xfb"), answer.content[:8]
    answer = client.audio.speech.create(model="main_audio", voice="alloy", input="Hello", response_format="wav")
    assert answer.response.headers["content-type"] == "audio/wav", answer.response.headers
    assert answer.content.startswith(b"RIFF"), answer.content[:8]


def speech_streamed():
    behave("pieces-5-50", ["audio-one", "audio-two"])
    ask = client.audio.speech.with_streaming_response
    with ask.create(model="main_audio", voice="alloy", input="Hello, this is spoken.") as answer:
        began = time.monotonic()
        pieces = [(time.monotonic() - began, len(piece)) for piece in answer.iter_bytes(1024)]
    assert sum(length for _, length in pieces) == 5 * 1024, pieces
    assert pieces[-1][0] - pieces[0][0] > 0.1, f"it came at once: {pieces}"


def speech_that_breaks_off_raises():
    behave("cut-content", ["audio-one", "audio-two"])
    try:
        client.with_options(max_retries=0).audio.speech.create(model="main_audio", voice="alloy", input="Hello")
    except openai.APIConnectionError:
        return
    raise AssertionError("half of a file ended as if it were whole")


def transcription():
    answer = client.audio.transcriptions.create(model="main_speech2text", file=recording())
    assert answer.text == "Hello from a recording." and answer._request_id, answer
    assert (answer.usage.type, answer.usage.seconds) == ("duration", 1.5), answer


def transcription_as_text():
    for kind in ["text", "srt", "vtt"]:
        answer = client.audio.transcriptions.create(
            model="main_speech2text", file=recording(), response_format=kind, language="en", temperature=0.2
        )
        assert answer == "Hello from a recording.\n", (kind, answer)


def transcription_with_its_details():
    answer = client.audio.transcriptions.create(
        model="main_speech2text",
        file=recording(),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert (answer.text, answer.duration, answer.language) == ("Hello from a recording.", 1.5, "english"), answer
    assert answer.segments == [], answer


def moderation():
    answer = client.moderations.create(model="main_moderation", input=["hello", "again"])
    assert [result.flagged for result in answer.results] == [False, False], answer
    assert answer.results[0].category_scores.violence == 0.01, answer
    assert answer.model == "main_moderation", answer
    request_id(answer, "modr")


def rerank():
    """The client knows no such call; its bare `post` does."""
    body = {"model": "main_rerank", "query": "long", "documents": ["a", "a longer one"], "top_n": 1}
    answer = client.post("/rerank", cast_to=object, body=body)
    assert [result["index"] for result in answer["results"]] == [1], answer
    assert answer["model"] == "main_rerank", answer


def models():
    listed = client.models.list()
    assert listed.object == "list" and not listed.has_next_page(), listed
    names = [model.id for model in listed.data]
    assert {f"main_{capability}" for capability in ["text", *OTHERS]} <= set(names), names
    assert {model.owned_by for model in listed.data} == {"forebay"}, listed
    assert all(model.object == "model" and model.created > 0 for model in listed.data), listed


def several_at_once():
    async def ask():
        asynchronous = openai.AsyncOpenAI(base_url=f"{BASE_URL}/v1", api_key=TOKEN)
        chats = [asynchronous.chat.completions.create(model="main_text", messages=MESSAGES) for _ in range(20)]
        return await asyncio.gather(*chats)

    assert len({answer.id for answer in asyncio.run(ask())}) == 20


def a_key_is_served_once():
    key = {"Idempotency-Key": str(uuid.uuid4())}
    before = asked()
    ask = lambda text: client.completions.create(model="main_text", prompt=text, extra_headers=key)
    first, again = ask("hello"), ask("hello")
    assert first.id == again.id and first.choices == again.choices, (first, again)
    assert asked() == before + 1, "the same key was sent twice"
    raises(openai.ConflictError, "idempotency_conflict", lambda: ask("other"))
    assert asked() == before + 1, "a conflict was sent"


def errors_are_its_own():
    wav = recording()
    for call, kind, code in [
        (lambda: client.chat.completions.create(model="nope", messages=MESSAGES), openai.NotFoundError, "not_found"),
        (lambda: client.chat.completions.create(model="main_text", messages=[]), openai.BadRequestError, "invalid_request"),
        (lambda: client.completions.create(model="main_text", prompt=""), openai.BadRequestError, "invalid_request"),
        (
            lambda: client.responses.create(model="main_text", input="hi", previous_response_id="resp_1"),
            openai.BadRequestError,
            "unsupported",
        ),
        (lambda: client.embeddings.create(model="main_text", input="hi"), openai.BadRequestError, "invalid_request"),
        (lambda: client.images.generate(model="main_image", prompt=""), openai.BadRequestError, "invalid_request"),
        (lambda: client.images.generate(model="main_image", prompt="x", n=17), openai.BadRequestError, "invalid_request"),
        (
            lambda: client.audio.speech.create(model="main_audio", voice="alloy", input="x", speed=9),
            openai.BadRequestError,
            "invalid_request",
        ),
        (
            lambda: client.audio.transcriptions.create(model="main_speech2text", file=wav, temperature=7),
            openai.BadRequestError,
            "invalid_request",
        ),
        (lambda: client.moderations.create(model="main_moderation", input=[]), openai.BadRequestError, "invalid_request"),
        (lambda: client.with_options(api_key="fb_wrong").models.list(), openai.AuthenticationError, "unauthorized"),
        (lambda: client.models.retrieve("nope"), openai.NotFoundError, "not_found"),
        (lambda: client.files.list(), openai.NotFoundError, "not_found"),
    ]:
        error = raises(kind, code, call)
        assert error.request_id and error.type and error.body["message"], error


def errors_name_the_field():
    call = lambda: client.chat.completions.create(model="main_text", messages=MESSAGES, max_tokens=-1)
    assert raises(openai.BadRequestError, "invalid_request", call).param == "max_tokens"


def what_the_upstream_rejects_keeps_its_meaning():
    calls = [
        (TEXT, lambda: client.chat.completions.create(model="main_text", messages=MESSAGES)),
        (["image-one", "image-two"], lambda: client.images.generate(model="main_image", prompt="x")),
        (["audio-one", "audio-two"], lambda: client.audio.speech.create(model="main_audio", voice="alloy", input="x")),
    ]
    for names, call in calls:
        behave("policy", names)
        raises(openai.BadRequestError, "content_rejected", call)
        behave("400", names)
        assert raises(openai.BadRequestError, "invalid_request", call).param == "temperature"


def a_stream_that_dies_raises():
    behave("cut-content", TEXT)
    calls = [
        lambda: list(client.chat.completions.create(model="main_text", messages=MESSAGES, stream=True)),
        lambda: list(client.completions.create(model="main_text", prompt="hello", stream=True)),
    ]
    for call in calls:
        raises(openai.APIError, "upstream_failed", call)
    with client.responses.create(model="main_text", input="hello", stream=True) as stream:
        try:
            last = list(stream)[-1]
        except openai.APIError as error:
            assert error.code == "upstream_failed", error
        else:
            assert last.type in ("response.failed", "error"), last


def retried(behaviour, status, names, call):
    """What the client makes of refusals that end after the first: the seconds between its two requests."""
    seen = []

    def mend(response):
        seen.append((time.monotonic(), response.status_code, response.headers.get("retry-after")))
        behave("ok", names)

    behave(behaviour, names)
    with openai.DefaultHttpxClient(event_hooks={"response": [mend]}) as transport:
        call(openai.OpenAI(base_url=f"{BASE_URL}/v1", api_key=TOKEN, http_client=transport))
    assert [code for _, code, _ in seen] == [status, 200], seen
    return seen[1][0] - seen[0][0], seen[0][2]


def m9_a_429_is_sent_again_when_it_says():
    call = lambda client: client.chat.completions.create(model="main_text", messages=MESSAGES)
    waited, after = retried("429-2", 429, TEXT, call)
    assert after and int(after) <= waited < int(after) + 2, (waited, after)


def a_failed_upstream_is_asked_again():
    call = lambda client: client.embeddings.create(model="main_embedding", input="hello")
    retried("500", 502, ["embedding-one", "embedding-two"], call)


def m9_an_unknown_outcome_is_sent_once():
    wav = recording()
    for capability, call in [
        ("text", lambda: client.chat.completions.create(model="main_text", messages=MESSAGES)),
        ("text", lambda: client.responses.create(model="main_text", input="hello")),
        ("image", lambda: client.images.generate(model="main_image", prompt="a dot")),
        ("image", lambda: client.images.edit(model="main_image", image=DOT, prompt="a dot")),
        ("audio", lambda: client.audio.speech.create(model="main_audio", voice="alloy", input="hello")),
        ("speech2text", lambda: client.audio.transcriptions.create(model="main_speech2text", file=wav)),
    ]:
        behave("502", TEXT if capability == "text" else [f"{capability}-one", f"{capability}-two"])
        before = asked()
        error = raises(openai.InternalServerError, "outcome_unknown", call)
        assert error.status_code == 504 and error.request_id, error
        assert asked() == before + 1, f"{capability}: the client sent it again"


TESTS = [
    chat,
    chat_streamed,
    chat_streamed_by_its_helper,
    chat_calls_tools,
    completion,
    completion_streamed,
    response,
    response_streamed,
    response_streamed_by_its_helper,
    embeddings,
    image_by_its_address,
    image_inside,
    image_edited,
    speech,
    speech_streamed,
    speech_that_breaks_off_raises,
    transcription,
    transcription_as_text,
    transcription_with_its_details,
    moderation,
    rerank,
    models,
    several_at_once,
    a_key_is_served_once,
    errors_are_its_own,
    errors_name_the_field,
    what_the_upstream_rejects_keeps_its_meaning,
    a_stream_that_dies_raises,
    m9_a_429_is_sent_again_when_it_says,
    a_failed_upstream_is_asked_again,
    m9_an_unknown_outcome_is_sent_once,
]


if __name__ == "__main__":
    sys.exit(run(TESTS))
