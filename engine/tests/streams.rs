//! Streams: probed until their first content, then committed.

use std::time::Duration;

use crate::support::{Beat, Bench, FALLBACK, INITIAL, Play, Record, cut, two};
use forebay_engine::attempt::AttemptStatus;
use forebay_engine::stream::EventSource;
use forebay_engine::task::Served;
use forebay_engine::{Class, Clock, Failure};

async fn read_all<U>(served: Served<U>) -> (Vec<&'static str>, Option<Failure>)
where
    U: forebay_engine::Upstream,
    U::Stream: EventSource<Event = &'static str>,
{
    let Served::Stream(mut live) = served else { panic!("a stream was asked for") };
    let mut texts = Vec::new();
    loop {
        match live.next().await {
            Ok(Some(text)) => texts.push(text),
            Ok(None) => return (texts, None),
            Err(failure) => return (texts, Some(failure)),
        }
    }
}

async fn stream(
    bench: &Bench,
    beats: Vec<Result<Beat, Failure>>,
) -> (Vec<&'static str>, Option<Failure>, Record) {
    bench.script.set("a", [Play::Stream(beats)]);
    bench.script.set("b", [Play::Stream(vec![Ok(Beat::Text("from b"))])]);
    let record = Record::default();
    let served = bench.engine.run(&*bench.script, &record, &bench.job(true), std::future::pending()).await;
    let (texts, failure) = read_all(served.expect("a stream")).await;
    (texts, failure, record)
}

#[tokio::test(start_paused = true)]
async fn s1_s2_s3_before_its_first_content_a_stream_may_fail_unseen() {
    for beats in [
        vec![Err(cut())],
        vec![Ok(Beat::Role), Err(cut())],
        vec![Ok(Beat::Role), Ok(Beat::Wait(3_600_000))],
        vec![Ok(Beat::Quiet), Ok(Beat::Role)],
        vec![Err(Failure::new(Class::RateLimited, "an error event"))],
    ] {
        let bench = two();
        let (texts, failure, record) = stream(&bench, beats.clone()).await;
        assert_eq!((texts, failure), (vec!["from b"], None), "{beats:?}");
        assert_eq!(record.kinds(), [INITIAL, FALLBACK], "{beats:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s2_silence_before_content_ends_at_the_first_packet_timeout() {
    let bench = two();
    let began = bench.clock.now();
    let (texts, ..) = stream(&bench, vec![Ok(Beat::Role), Ok(Beat::Wait(3_600_000))]).await;
    assert_eq!(texts, ["from b"]);
    assert_eq!(bench.clock.now().since(began), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn s4_s5_after_its_first_content_a_death_is_told_and_nothing_is_glued_on() {
    for death in [Err(cut()), Ok(Beat::Wait(3_600_000))] {
        let bench = two();
        let (texts, failure, record) =
            stream(&bench, vec![Ok(Beat::Role), Ok(Beat::Text("half")), death]).await;
        assert_eq!(texts, ["role", "half"]);
        assert_eq!(failure.map(|failure| failure.class), Some(Class::Unknown));
        assert_eq!((record.kinds(), bench.script.calls()), (vec![INITIAL], vec!["a".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn s5_s13_a_committed_stream_may_be_silent_for_a_minute_and_without_content_for_three() {
    let alive = |n| std::iter::repeat_n([Ok(Beat::Wait(50_000)), Ok(Beat::Quiet)], n).flatten();
    let bench = two();
    let began = bench.clock.now();
    let beats = [Ok(Beat::Text("x"))].into_iter().chain(alive(10)).collect();
    let (_, failure, _) = stream(&bench, beats).await;
    assert!(failure.expect("it is ended").message.contains("no content"));
    assert_eq!(bench.clock.now().since(began), Duration::from_secs(180));

    // S13: content every fifty seconds, for ten minutes and more.
    let beats = (0..15).flat_map(|_| [Ok(Beat::Text("x")), Ok(Beat::Wait(50_000))]).collect();
    let (texts, failure, _) = stream(&two(), beats).await;
    assert_eq!((texts.len(), failure), (15, None));
}

#[tokio::test(start_paused = true)]
async fn a_stream_succeeds_at_its_first_content_and_a_later_death_is_one_more_failure() {
    let bench = two();
    bench.script.set("a", [Play::Stream(vec![Ok(Beat::Text("x")), Err(cut())])]);
    let record = Record::default();
    let served = bench.engine.run(&*bench.script, &record, &bench.job(true), std::future::pending()).await;
    let Ok(Served::Stream(mut live)) = served else { panic!("a stream") };
    let failures = || bench.member("a").state.breaker.view(bench.clock.now()).consecutive_failures;
    assert_eq!((failures(), bench.member("a").state.in_flight.taken()), (0, 1));
    assert_eq!(live.next().await, Ok(Some("x")));
    let failure = live.next().await.expect_err("it dies");
    let ended = live.end(&forebay_engine::live::StreamEnd::Died(failure), None, None);
    assert_eq!((failures(), bench.member("a").state.in_flight.taken()), (1, 0));
    assert_eq!((ended.status, ended.outcome_unknown), (AttemptStatus::Failed, true));
}
