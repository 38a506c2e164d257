//! Each capability × {success, retry, fallback, unknown, all failed}: attempts, statuses, credits and
//! cost; and every endpoint of /v1, in OpenAI's shape.

use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};

use crate::app::{Answer, Plan, Streamed, TestApp};

/// One capability: how it is asked, and what one answer costs.
struct Case {
    capability: &'static str,
    input: Value,
    price: Value,
    prices: Value,
    /// Micro-units: what the caller pays, and what we pay.
    charge: i64,
    cost: i64,
    /// Whether a 200 without a result may have been billed.
    empty_is_unknown: bool,
}

fn cases() -> Vec<Case> {
    let case = |capability, input, unit: &str, charge, cost, empty_is_unknown| Case {
        capability,
        input,
        price: json!({unit: "0.02"}),
        prices: json!({unit: "0.01"}),
        charge,
        cost,
        empty_is_unknown,
    };
    // Of no known format: held for as if a byte were a millisecond.
    let recording = format!("data:audio/wav;base64,{}", "AAAA".repeat(700));
    vec![
        Case {
            capability: "text",
            input: json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 64}),
            price: json!({"input_per_1m": "0.50", "output_per_1m": "1.50"}),
            prices: json!({"input_per_1m": "0.10", "output_per_1m": "0.30"}),
            charge: 24,
            cost: 5,
            empty_is_unknown: false,
        },
        case("image", json!({"prompt": "a cat", "n": 2}), "per_image", 40_000, 20_000, true),
        case("audio", json!({"input": "Hello there", "voice": "alloy"}), "per_1k_characters", 220, 110, true),
        case("embedding", json!({"input": ["one", "two"]}), "per_request", 20_000, 10_000, false),
        case(
            "rerank",
            json!({"query": "q", "documents": ["a", "bb"]}),
            "per_rerank_unit",
            20_000,
            10_000,
            false,
        ),
        case("moderation", json!({"input": "hello"}), "per_request", 20_000, 10_000, false),
        // A second and a half.
        case("speech2text", json!({"audio": recording}), "per_audio_second", 30_000, 15_000, false),
    ]
}

async fn app(case: &Case, size: usize) -> TestApp {
    let waits = json!({(case.capability): {"waits_ms": [1, 1]}});
    let models: Value =
        ["a", "b", "c"].map(|name| (name.to_owned(), json!({"prices": case.prices}))).into_iter().collect();
    TestApp::with(Plan {
        capability: case.capability,
        pool: json!({"price": case.price}),
        models,
        settings: json!({"routing": waits}),
        size,
        ..Plan::default()
    })
    .await
}

async fn generate(app: &TestApp, case: &Case) -> Answer {
    let body = json!({"model_group": format!("main_{}", case.capability), "input": case.input});
    Answer::of(app.post("/api/generate").body(body.to_string())).await
}

/// The attempts of the newest task: model, kind, status.
async fn attempts(app: &TestApp) -> Vec<(String, String, String)> {
    let (_, attempts) = app.last_task().await;
    attempts.into_iter().map(|attempt| (attempt.model, attempt.kind, attempt.status)).collect()
}

fn expect(rows: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    rows.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect()
}

#[tokio::test]
async fn every_capability_succeeds_and_is_paid_for_by_its_own_unit() {
    for case in cases() {
        let app = app(&case, 3).await;
        let answer = generate(&app, &case).await;
        let what = case.capability;
        assert_eq!(answer.status, 200, "{what}: {}", answer.body);
        assert_eq!((&answer.body["status"], &answer.body["capability"]), (&json!("succeeded"), &json!(what)));
        assert_eq!(attempts(&app).await, expect(&[("a", "initial", "succeeded")]), "{what}");
        let (task, made) = app.last_task().await;
        assert_eq!((task.credits_charged, made[0].cost), (Some(case.charge), Some(case.cost)), "{what}");
        let text = answer.body.to_string();
        assert!(!text.contains("sim") && !text.contains("127.0.0.1:9"), "{what}: {text}");
        app.money_adds_up().await;
    }
}

#[tokio::test]
async fn every_capability_is_retried_on_its_own_model_when_there_is_no_other() {
    for case in cases() {
        let app = app(&case, 1).await;
        app.set("a", "once-503");
        let answer = generate(&app, &case).await;
        assert_eq!(answer.status, 200, "{}: {}", case.capability, answer.body);
        let wanted = expect(&[("a", "initial", "failed"), ("a", "retry", "succeeded")]);
        assert_eq!(attempts(&app).await, wanted, "{}", case.capability);
        let (task, _) = app.last_task().await;
        assert_eq!(task.credits_charged, Some(case.charge), "{}: paid for once", case.capability);
    }
}

#[tokio::test]
async fn every_capability_falls_back_to_another_member() {
    for case in cases() {
        let app = app(&case, 3).await;
        for (behaviour, kind) in
            [("500", "fallback"), ("429", "fallback"), ("401", "fallback"), ("404", "fallback")]
        {
            app.set("a", behaviour);
            let answer = generate(&app, &case).await;
            assert_eq!(answer.status, 200, "{} {behaviour}: {}", case.capability, answer.body);
            let wanted = expect(&[("a", "initial", "failed"), ("b", kind, "succeeded")]);
            assert_eq!(attempts(&app).await, wanted, "{} {behaviour}", case.capability);
            app.clock.advance(std::time::Duration::from_secs(3_600));
        }
        app.money_adds_up().await;
    }
}

#[tokio::test]
async fn m2_an_unknown_outcome_of_any_capability_is_never_sent_again() {
    for case in cases() {
        let app = app(&case, 3).await;
        for behaviour in ["reset", "502", "cut"] {
            app.set("a", behaviour);
            let before = app.asked();
            let answer = generate(&app, &case).await;
            assert_eq!(answer.outcome(), (504, "outcome_unknown"), "{} {behaviour}", case.capability);
            assert_eq!(answer.header("x-should-retry"), Some("false"));
            assert_eq!(app.asked(), [before[0] + 1, before[1], before[2]], "{} {behaviour}", case.capability);
            let (task, attempts) = app.last_task().await;
            assert_eq!((task.status.as_str(), task.credits_charged), ("outcome_unknown", Some(0)));
            assert!(attempts[0].outcome_unknown(), "{} {behaviour}", case.capability);
        }
        app.money_adds_up().await;
    }
}

#[tokio::test]
async fn m10_a_200_without_a_result_is_unknown_where_it_may_have_been_billed_and_falls_over_elsewhere() {
    for case in cases() {
        let app = app(&case, 3).await;
        for behaviour in ["empty-choices", "html"] {
            app.set("a", behaviour);
            let before = app.asked();
            let answer = generate(&app, &case).await;
            let what = format!("{} {behaviour}", case.capability);
            if case.empty_is_unknown {
                assert_eq!(answer.outcome(), (504, "outcome_unknown"), "{what}");
                assert_eq!(app.asked(), [before[0] + 1, before[1], before[2]], "{what}");
            } else {
                assert_eq!(answer.status, 200, "{what}: {}", answer.body);
                let wanted = expect(&[("a", "initial", "failed"), ("b", "fallback", "succeeded")]);
                assert_eq!(attempts(&app).await, wanted, "{what}");
            }
        }
        app.money_adds_up().await;
    }
}

#[tokio::test]
async fn when_all_fail_the_caller_of_any_capability_pays_nothing() {
    for case in cases() {
        let app = app(&case, 3).await;
        for model in ["a", "b", "c"] {
            app.set(model, "500");
        }
        let answer = generate(&app, &case).await;
        assert_eq!(answer.outcome(), (502, "upstream_failed"), "{}: {}", case.capability, answer.body);
        let made = attempts(&app).await;
        assert_eq!(
            made.iter().map(|(model, kind, _)| (model.as_str(), kind.as_str())).take(3).collect::<Vec<_>>(),
            [("a", "initial"), ("b", "fallback"), ("c", "fallback")],
            "{}",
            case.capability
        );
        assert!(made.len() <= 5 && made.iter().all(|(_, _, status)| status == "failed"), "{made:?}");
        let (task, _) = app.last_task().await;
        assert_eq!((task.status.as_str(), task.credits_charged), ("failed", Some(0)));
        app.money_adds_up().await;
    }
}

/// An app whose pool of `capability` has one model.
async fn one(capability: &'static str) -> TestApp {
    TestApp::with(Plan { capability, size: 1, ..Plan::default() }).await
}

async fn v1(app: &TestApp, path: &str, body: Value) -> Answer {
    Answer::of(app.post(path).body(body.to_string())).await
}

#[tokio::test]
async fn images_are_ours_before_a_caller_sees_them() {
    let app = one("image").await;
    let body = json!({"model": "main_image", "prompt": "a cat", "n": 2});
    let answer = v1(&app, "/v1/images/generations", body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let urls: Vec<&str> = answer.body["data"]
        .as_array()
        .expect("data")
        .iter()
        .filter_map(|item| item["url"].as_str())
        .collect();
    assert_eq!(urls.len(), 2);
    for url in &urls {
        assert!(url.starts_with(&app.url("/results/")), "{url}");
        let image = reqwest::get(*url).await.expect("it is served");
        assert_eq!(
            (image.status().as_u16(), &image.headers()["content-type"]),
            (200, &"image/png".parse().expect("a header"))
        );
        assert_eq!(image.bytes().await.expect("bytes").len(), 67);
    }
    let forged = urls[0].replace("expires=", "expires=9");
    assert_eq!(reqwest::get(forged).await.expect("an answer").status(), 403);
    // The task's own page signs anew, and the ledger holds no address that ends.
    let (task, _) = app.last_task().await;
    assert!(task.output.expect("an output").contains("\"result:"));
    let shown = Answer::of(app.get(&format!("/api/tasks/{}", task.id))).await;
    assert!(shown.body["output"]["data"][0]["url"].as_str().expect("a URL").contains("/results/"));
}

#[tokio::test]
async fn a_result_that_was_made_and_is_no_image_or_not_there_is_never_made_again() {
    let app = TestApp::with(Plan {
        capability: "image",
        settings: json!({"postprocess": {"waits_ms": [1]}}),
        ..Plan::default()
    })
    .await;
    let sim = app.sim.base_url().replace("/v1", "");
    let page = "data:text/html,x".to_owned();
    for (what, item) in [
        ("gone", json!({"url": format!("{sim}/files/gone.png")})),
        ("a page", json!({"url": format!("{sim}/control")})),
        ("elsewhere, and private", json!({"url": "http://127.0.0.1:9/x.png"})),
        ("no web address", json!({"url": page})),
        ("a page inside", json!({"b64_json": "PGh0bWw+"})),
    ] {
        let body = json!({"created": 1, "data": [item]});
        app.sim.record("a", Some(forebay::simulator::Recorded { status: 200, headers: Vec::new(), body }));
        let before = app.asked();
        let answer = v1(&app, "/v1/images/generations", json!({"model": "main_image", "prompt": "x"})).await;
        assert_eq!(answer.outcome(), (504, "outcome_unknown"), "{what}: {}", answer.body);
        assert_eq!(answer.header("x-should-retry"), Some("false"), "{what}");
        assert_eq!(app.asked(), [before[0] + 1, before[1], before[2]], "{what}");
        let (task, attempts) = app.last_task().await;
        assert_eq!((task.status.as_str(), task.credits_charged), ("outcome_unknown", Some(0)), "{what}");
        let told = attempts[0].error_message.clone().unwrap_or_default();
        assert!(told.contains("could not be kept"), "{what}: an operator is told why: {told}");
    }
    app.money_adds_up().await;
}

#[tokio::test]
async fn an_image_that_comes_inside_stays_inside_and_is_kept_beside() {
    let app = one("image").await;
    let body = json!({"model": "main_image", "prompt": "a cat", "response_format": "b64_json"});
    let request = app.post("/v1/images/generations").header("idempotency-key", "k").body(body.to_string());
    let again = request.try_clone().expect("it can be sent again");
    let first = Answer::of(request).await;
    assert!(
        first.body["data"][0]["b64_json"].as_str().expect("an image").starts_with("iVBOR"),
        "{}",
        first.body
    );
    let (task, _) = app.last_task().await;
    assert!(!task.output.expect("an output").contains("iVBOR"), "the ledger keeps a mark");
    let second = Answer::of(again).await;
    assert_eq!(second.body["data"], first.body["data"], "a replay reads it back");
    assert_eq!(app.asked()[0], 1);
}

#[tokio::test]
async fn of_images_that_partly_failed_the_others_are_delivered_and_paid_for() {
    let app = TestApp::with(Plan {
        capability: "image",
        size: 1,
        pool: json!({"price": {"per_image": "0.02"}}),
        ..Plan::default()
    })
    .await;
    app.set("a", "partial");
    let answer =
        v1(&app, "/v1/images/generations", json!({"model": "main_image", "prompt": "x", "n": 3})).await;
    assert_eq!((answer.status, answer.body["data"].as_array().map(Vec::len)), (200, Some(2)));
    assert_eq!(app.last_task().await.0.credits_charged, Some(40_000));
    // Nothing at all, and a reason for it: that reason's class.
    let answer = v1(&app, "/v1/images/generations", json!({"model": "main_image", "prompt": "x"})).await;
    assert_eq!(answer.outcome(), (400, "content_rejected"));
}

#[tokio::test]
async fn an_image_is_edited_from_a_form_and_from_urls() {
    let app = TestApp::with(Plan {
        capability: "image",
        size: 1,
        models: json!({"a": {"features": {"image_edit": true}}}),
        ..Plan::default()
    })
    .await;
    let png = || {
        Part::bytes(vec![0x89, b'P', b'N', b'G']).file_name("a.png").mime_str("image/png").expect("a type")
    };
    let form = Form::new().text("model", "main_image").text("prompt", "add a hat").part("image", png());
    let edit = |form: Form| {
        app.client.post(app.url("/v1/images/edits")).bearer_auth(&app.seeded.token).multipart(form)
    };
    let answer = Answer::of(edit(form)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let asked = app.sim.last_request("a");
    assert_eq!((&asked["prompt"], &asked["image"]["bytes"]), (&json!("add a hat"), &json!(4)));

    let body = json!({"model_group": "main_image", "operation": "edit",
                      "input": {"prompt": "two", "image": ["data:image/png;base64,iVBORw==", "data:image/png;base64,iVBORw=="]}});
    let answer = v1(&app, "/api/generate", body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(app.sim.last_request("a")["image"].as_array().map(Vec::len), Some(2), "image[] twice");

    let form = Form::new().text("model", "main_image").text("prompt", "no image");
    let answer = Answer::of(edit(form)).await;
    assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!("image")));
    // What a caller names on a private network is not fetched.
    let body = json!({"model_group": "main_image", "operation": "edit",
                      "input": {"prompt": "x", "image": app.sim.base_url().replace("/v1", "/files/dot.png")}});
    let answer = v1(&app, "/api/generate", body).await;
    assert_eq!(answer.outcome(), (400, "invalid_request"), "{}", answer.body);
    assert_eq!(answer.body["error"]["param"], "input.image");
    assert!(
        answer.body["error"]["message"].as_str().is_some_and(|why| why.contains("private address")),
        "{}",
        answer.body
    );
    // A picture of three megabytes is no large one.
    let large = Part::bytes(vec![0x89; 3 << 20]).file_name("l.png").mime_str("image/png").expect("a type");
    let form = Form::new().text("model", "main_image").text("prompt", "large").part("image", large);
    assert_eq!(Answer::of(edit(form)).await.status, 200);
}

#[tokio::test]
async fn speech_is_passed_on_as_it_comes_and_kept_for_a_replay() {
    let app = one("audio").await;
    app.set("a", "pieces-4-5");
    let speak = || {
        let body = json!({"model": "main_audio", "input": "Hello", "voice": "alloy"});
        app.post("/v1/audio/speech").header("idempotency-key", "k").body(body.to_string())
    };
    let first = speak().send().await.expect("an answer");
    assert_eq!(
        (first.status().as_u16(), &first.headers()["content-type"]),
        (200, &"audio/mpeg".parse().expect("a header"))
    );
    let sound = first.bytes().await.expect("a body");
    assert_eq!(sound.len(), 4 * 1_024);
    let second = speak().send().await.expect("an answer");
    assert_eq!(second.bytes().await.expect("a body"), sound);
    assert_eq!(app.asked()[0], 1, "a replay asks nobody");
    let (task, _) = app.last_task().await;
    let shown = Answer::of(app.get(&format!("/api/tasks/{}", task.id))).await;
    let kept = reqwest::get(shown.body["output"]["audio"]["url"].as_str().expect("a URL"))
        .await
        .expect("it is served");
    assert_eq!(kept.bytes().await.expect("bytes"), sound);
}

#[tokio::test]
async fn speech_that_breaks_off_breaks_the_connection_and_costs_nothing() {
    let app = one("audio").await;
    app.set("a", "cut-content");
    let body = json!({"model": "main_audio", "input": "Hello there", "voice": "alloy"});
    let streamed = app.post("/v1/audio/speech").body(body.to_string()).send().await.expect("headers");
    assert_eq!(streamed.status(), 200);
    assert!(streamed.bytes().await.is_err(), "no clean end");
    let (task, attempts) = app.last_task().await;
    assert_eq!((task.status.as_str(), task.credits_charged), ("failed", Some(0)));
    assert!(attempts[0].outcome_unknown());
    app.money_adds_up().await;
}

#[tokio::test]
async fn a_recording_becomes_text_in_every_format() {
    let app = one("speech2text").await;
    let transcribe = |format: Option<&'static str>| {
        let wav =
            Part::bytes(b"RIFF0000WAVE".to_vec()).file_name("a.wav").mime_str("audio/wav").expect("a type");
        let mut form =
            Form::new().text("model", "main_speech2text").part("file", wav).text("temperature", "0");
        if let Some(format) = format {
            form = form.text("response_format", format);
        }
        app.client.post(app.url("/v1/audio/transcriptions")).bearer_auth(&app.seeded.token).multipart(form)
    };
    let answer = Answer::of(transcribe(None)).await;
    assert_eq!(
        (answer.status, &answer.body["text"]),
        (200, &json!("Hello from a recording.")),
        "{}",
        answer.body
    );
    let answer = Answer::of(transcribe(Some("verbose_json"))).await;
    assert_eq!((&answer.body["duration"], &answer.body["language"]), (&json!(1.5), &json!("english")));
    let answer = Answer::of(transcribe(Some("srt"))).await;
    assert_eq!(answer.body, json!("Hello from a recording.\n"));
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
    let answer = Answer::of(transcribe(Some("mp4"))).await;
    assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!("response_format")));
}

#[tokio::test]
async fn embeddings_rerank_and_moderations_answer_in_openais_shape() {
    let app = one("embedding").await;
    let body =
        json!({"model": "main_embedding", "input": ["a", "b"], "dimensions": 4, "encoding_format": "base64"});
    let answer = v1(&app, "/v1/embeddings", body).await;
    assert_eq!(
        (answer.status, &answer.body["object"], &answer.body["model"]),
        (200, &json!("list"), &json!("main_embedding"))
    );
    assert!(answer.body["data"][1]["embedding"].is_string());
    assert!(answer.body["usage"]["prompt_tokens"].is_u64() && answer.body["usage"]["total_tokens"].is_u64());

    let app = one("rerank").await;
    let body = json!({"model": "main_rerank", "query": "q", "documents": ["a", "bbb", "cc"], "top_n": 2});
    let answer = v1(&app, "/v1/rerank", body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.body["results"].as_array().map(Vec::len), Some(2));
    assert_eq!(answer.body["results"][0]["index"], 1);

    let app = one("moderation").await;
    let answer = v1(&app, "/v1/moderations", json!({"model": "main_moderation", "input": "hi"})).await;
    assert_eq!((answer.status, &answer.body["model"]), (200, &json!("main_moderation")));
    assert_eq!(answer.body["results"][0]["flagged"], false);
    assert!(answer.body["id"].as_str().is_some_and(|id| id.starts_with("modr-") && id != "modr-sim"));
}

#[tokio::test]
async fn older_completions_and_responses_answer_whole_and_streamed() {
    let app = one("text").await;
    let answer = v1(&app, "/v1/completions", json!({"model": "main_text", "prompt": "hi"})).await;
    assert_eq!(
        (&answer.body["object"], &answer.body["choices"][0]["text"]),
        (&json!("text_completion"), &json!("Hello from a."))
    );
    let body = json!({"model": "main_text", "prompt": "hi", "stream": true});
    let streamed = Streamed::of(app.post("/v1/completions").body(body.to_string())).await;
    let text: String = streamed
        .chunks()
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!((text.as_str(), streamed.is_done()), ("Hello from a", true));
    assert!(
        streamed
            .chunks()
            .iter()
            .all(|chunk| chunk["model"] == "main_text" && chunk["object"] == "text_completion")
    );
    let (task, _) = app.last_task().await;
    assert!(task.output.expect("an output").contains("Hello from a"));

    let answer = v1(&app, "/v1/responses", json!({"model": "main_text", "input": "hi"})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!((&answer.body["object"], &answer.body["model"]), (&json!("response"), &json!("main_text")));
    assert_eq!(answer.body["output"][0]["content"][0]["text"], "Hello from a.");
    assert_eq!(answer.body["usage"]["total_tokens"], 12);
    assert!(answer.body["id"].as_str().is_some_and(|id| id.starts_with("resp-")), "{}", answer.body);
    let body = json!({"model": "main_text", "input": "hi", "stream": true});
    let request = app.post("/v1/responses").header("idempotency-key", "k").body(body.to_string());
    let again = request.try_clone().expect("it can be sent again");
    let streamed = Streamed::of(request).await;
    let kinds: Vec<Value> = streamed.chunks().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&json!("response.created")), Some(&json!("response.completed")))
    );
    let text = |streamed: &Streamed| -> String {
        streamed
            .chunks()
            .iter()
            .filter(|event| event["type"] == "response.output_text.delta")
            .filter_map(|event| event["delta"].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(text(&streamed), "Hello from a.");
    assert!(!streamed.raw.contains("resp_sim") && !streamed.raw.contains("[DONE]"), "{}", streamed.raw);
    assert_eq!(text(&Streamed::of(again).await), "Hello from a.", "a replay says the same");
    for stateful in ["previous_response_id", "background"] {
        let answer =
            v1(&app, "/v1/responses", json!({"model": "main_text", "input": "hi", (stateful): "x"})).await;
        assert_eq!(answer.outcome(), (400, "unsupported"), "{stateful}");
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_is_an_error_event_and_no_completion() {
    let app = one("text").await;
    app.set("a", "cut-content");
    let body = json!({"model": "main_text", "input": "hi", "stream": true});
    let streamed = Streamed::of(app.post("/v1/responses").body(body.to_string())).await;
    let last = streamed.chunks().pop().expect("an event");
    assert_eq!((&last["type"], &last["code"]), (&json!("error"), &json!("upstream_failed")));
    assert!(!streamed.raw.contains("response.completed"));
}

#[tokio::test]
async fn an_endpoint_asked_for_what_a_pool_does_not_generate_names_the_model() {
    let app = one("embedding").await;
    let answer = v1(&app, "/v1/moderations", json!({"model": "main_embedding", "input": "x"})).await;
    assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!("model")), "{}", answer.body);
    let answer = v1(
        &app,
        "/v1/chat/completions",
        json!({"model": "main_embedding", "messages": [{"role": "user", "content": "x"}]}),
    )
    .await;
    assert_eq!(answer.outcome(), (400, "invalid_request"));
}
