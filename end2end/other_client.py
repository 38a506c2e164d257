"""LiteLLM against Forebay's demo, as an OpenAI-compatible server: every call that it has for one."""

import base64
import io
import os
import sys
import urllib.request
import warnings
import wave

# Its list of prices is not fetched from elsewhere.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm

from demo import BASE_URL, DOT, PNG, TOKEN, behave, run

MESSAGES = [{"role": "user", "content": "hello"}]

litellm.suppress_debug_info = True
# It warns of how it writes down its own usage objects.
warnings.filterwarnings("ignore", message="Pydantic serializer warnings")


def to(pool):
    """`openai/` is what LiteLLM calls any server that speaks OpenAI's API."""
    return {"model": f"openai/{pool}", "api_base": f"{BASE_URL}/v1", "api_key": TOKEN}


def named(name, bytes):
    file = io.BytesIO(bytes)
    file.name = name
    return file


def recording():
    file = named("recording.wav", b"")
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 12000)
    file.seek(0)
    return file


def completion():
    answer = litellm.completion(**to("main_text"), messages=MESSAGES, max_tokens=64)
    assert answer.choices[0].message.content.startswith("Hello from "), answer
    assert answer.model == "main_text" and answer.id.startswith("chatcmpl-"), answer
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0, answer


def completion_streamed():
    chunks = list(
        litellm.completion(**to("main_text"), messages=MESSAGES, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.startswith("Hello from "), text
    assert {chunk.model for chunk in chunks} == {"main_text"}, chunks
    assert chunks[-1].usage.completion_tokens == 4, chunks[-1]
    whole = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert whole.choices[0].message.content == text, whole


def text_completion():
    answer = litellm.text_completion(**to("main_text"), prompt="hello", max_tokens=64)
    assert answer.choices[0].text.startswith("Hello from "), answer
    assert answer.model == "main_text" and answer.usage.completion_tokens > 0, answer


def text_completion_asked_as_such():
    """With `text-completion-openai/` it goes to /v1/completions."""
    ask = {**to("main_text"), "model": "text-completion-openai/main_text"}
    answer = litellm.text_completion(**ask, prompt="hello", max_tokens=64)
    assert answer.choices[0].text.startswith("Hello from ") and answer.id.startswith("cmpl-"), answer
    chunks = list(litellm.text_completion(**ask, prompt="hello", stream=True))
    assert "".join(chunk.choices[0].text or "" for chunk in chunks).startswith("Hello from "), chunks


def response():
    answer = litellm.responses(**to("main_text"), input="hello", max_output_tokens=64)
    assert answer.output[0].content[0].text.startswith("Hello from "), answer
    assert (answer.model, answer.status) == ("main_text", "completed") and answer.usage.output_tokens > 0, answer


def response_streamed():
    events = list(litellm.responses(**to("main_text"), input="hello", stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text.startswith("Hello from "), text
    assert events[-1].type == "response.completed" and events[-1].response.model == "main_text", events[-1]


def embedding():
    for extra in [{}, {"encoding_format": "float"}]:
        answer = litellm.embedding(**to("main_embedding"), input=["one", "two"], **extra)
        assert [item["index"] for item in answer.data] == [0, 1], answer
        assert all(isinstance(number, float) for number in answer.data[0]["embedding"]), answer
        assert answer.model == "main_embedding" and answer.usage.prompt_tokens > 0, answer


def image_generation():
    answer = litellm.image_generation(**to("main_image"), prompt="a dot", n=2)
    for image in answer.data:
        assert image.url.startswith(f"{BASE_URL}/results/"), answer
        with urllib.request.urlopen(image.url) as file:
            assert file.read().startswith(PNG), answer
    # It takes the field itself only for models whose names it knows.
    inside = {"response_format": "b64_json"}
    answer = litellm.image_generation(**to("main_image"), prompt="a dot", extra_body=inside)
    assert base64.b64decode(answer.data[0].b64_json).startswith(PNG), answer


def image_edit():
    answer = litellm.image_edit(**to("main_image"), image=named("dot.png", DOT), prompt="a darker dot")
    assert answer.data[0].url or answer.data[0].b64_json, answer
    both = [named("a.png", DOT), named("b.png", DOT)]
    answer = litellm.image_edit(**to("main_image"), image=both, prompt="dots", response_format="b64_json")
    assert base64.b64decode(answer.data[0].b64_json).startswith(PNG), answer


def speech():
    answer = litellm.speech(**to("main_audio"), voice="alloy", input="Hello, this is spoken.")
    assert answer.content.startswith(b"\xff\xfb"), answer
    assert answer.response.headers["content-type"] == "audio/mpeg", answer.response.headers


def transcription():
    answer = litellm.transcription(**to("main_speech2text"), file=recording())
    assert answer.text == "Hello from a recording.", answer
    answer = litellm.transcription(**to("main_speech2text"), file=recording(), response_format="verbose_json")
    assert (answer.text, answer.duration) == ("Hello from a recording.", 1.5), answer
    answer = litellm.transcription(**to("main_speech2text"), file=recording(), response_format="text")
    assert (answer if isinstance(answer, str) else answer.text).strip() == "Hello from a recording.", answer


def moderation():
    # It hands the model on with whatever prefix it has.
    answer = litellm.moderation(**{**to("main_moderation"), "model": "main_moderation"}, input="hello")
    assert answer.results[0].flagged is False and answer.model == "main_moderation", answer


def rerank():
    """It has no `openai/` rerank; Cohere's shape is that of a server that hosts open models."""
    ask = {**to("main_rerank"), "model": "hosted_vllm/main_rerank"}
    answer = litellm.rerank(**ask, query="long", documents=["a", "a longer one"], top_n=1)
    assert [result["index"] for result in answer.results] == [1], answer


def errors_are_its_own():
    for call, kind, status in [
        (lambda: litellm.completion(**to("nope"), messages=MESSAGES), litellm.NotFoundError, 404),
        (lambda: litellm.completion(**to("main_text"), messages=[{"role": 1}]), litellm.BadRequestError, 400),
        (lambda: litellm.embedding(**to("main_embedding"), input=[]), litellm.BadRequestError, 400),
        (
            lambda: litellm.completion(**{**to("main_text"), "api_key": "fb_wrong"}, messages=MESSAGES),
            litellm.AuthenticationError,
            401,
        ),
    ]:
        try:
            call()
        except kind as error:
            assert error.status_code == status, error
        else:
            raise AssertionError(f"no {kind.__name__}")


def a_stream_that_dies_raises():
    behave("cut-content")
    try:
        list(litellm.completion(**to("main_text"), messages=MESSAGES, stream=True))
    except Exception as error:
        assert isinstance(error, litellm.exceptions.APIError | litellm.exceptions.MidStreamFallbackError), repr(error)
    else:
        raise AssertionError("a broken stream ended as if it were whole")


def a_429_is_its_own():
    behave("429-1")
    try:
        litellm.completion(**to("main_text"), messages=MESSAGES, max_retries=0)
    except litellm.RateLimitError as error:
        assert int(error.response.headers["retry-after"]) >= 1, error.response.headers
    else:
        raise AssertionError("no RateLimitError")
    behave("ok")
    litellm.completion(**to("main_text"), messages=MESSAGES, max_retries=4)


TESTS = [
    completion,
    completion_streamed,
    text_completion,
    text_completion_asked_as_such,
    response,
    response_streamed,
    embedding,
    image_generation,
    image_edit,
    speech,
    transcription,
    moderation,
    rerank,
    errors_are_its_own,
    a_stream_that_dies_raises,
    a_429_is_its_own,
]


if __name__ == "__main__":
    sys.exit(run(TESTS))
