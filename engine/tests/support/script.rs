//! The scripted upstream: what it does with each call, and whom it was asked of.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use forebay_engine::stream::{EventSource, Piece};
use forebay_engine::upstream::{Order, Whole};
use forebay_engine::{Class, Failure, Upstream, Usage};
use tokio::time::Instant;

/// What the upstream does with one call.
#[derive(Clone)]
pub(crate) enum Play {
    Serve,
    Fail(Failure),
    /// Sends, then never answers.
    Hang,
    /// Never connects.
    HangBeforeSending,
    /// Answers after a while.
    After(Duration),
    /// Answers after so long, and so much longer for each other call that is out.
    Busy(Duration, Duration),
    /// Answers, having used this.
    Use(Usage),
    /// Fails after a while.
    FailAfter(Duration, Failure),
    Panic,
    /// Streams these pieces, then ends; `Err` ends it badly.
    Stream(Vec<Result<Beat, Failure>>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beat {
    Role,
    Text(&'static str),
    Wait(u64),
    Quiet,
}

/// Plays a script for each member: one entry a call, the last one for ever.
#[derive(Default)]
pub(crate) struct Script {
    plays: Mutex<HashMap<String, VecDeque<Play>>>,
    calls: Mutex<Vec<(Instant, String, Option<String>)>>,
    open: Mutex<HashMap<String, (u32, u32)>>,
}

impl Script {
    pub(crate) fn set(&self, member: &str, plays: impl IntoIterator<Item = Play>) {
        self.plays.lock().expect("unpoisoned").insert(member.into(), plays.into_iter().collect());
    }
    /// Whom it was asked of, with which account.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("unpoisoned").iter().map(|(_, member, _)| member.clone()).collect()
    }
    pub(crate) fn accounts_used(&self) -> Vec<Option<String>> {
        self.calls.lock().expect("unpoisoned").iter().map(|(.., account)| account.clone()).collect()
    }
    /// When, since `start`, and of whom it was asked.
    pub(crate) fn timed(&self, start: Instant) -> Vec<(Duration, String)> {
        let calls = self.calls.lock().expect("unpoisoned");
        calls.iter().map(|(at, member, _)| (at.duration_since(start), member.clone())).collect()
    }
    /// The most calls of a member or an account that were open at once.
    pub(crate) fn peak(&self, name: &str) -> u32 {
        self.open.lock().expect("unpoisoned").get(name).map_or(0, |(_, peak)| *peak)
    }
    pub(crate) fn open(&self, name: &str) -> u32 {
        self.open.lock().expect("unpoisoned").get(name).map_or(0, |(open, _)| *open)
    }

    fn enter<R>(&self, order: &Order<'_, R>) -> (Play, Vec<Visit<'_>>) {
        let member = order.member.name.to_string();
        let account = order.account.map(|account| account.label.to_string());
        let visits = [Some(&member), account.as_ref()].into_iter().flatten().map(|name| {
            let mut open = self.open.lock().expect("unpoisoned");
            let entry = open.entry(name.clone()).or_default();
            entry.0 += 1;
            entry.1 = entry.1.max(entry.0);
            Visit { script: self, name: name.clone() }
        });
        let visits = visits.collect();
        let mut plays = self.plays.lock().expect("unpoisoned");
        let play = match plays.get_mut(&member) {
            None => Play::Serve,
            Some(script) if script.len() > 1 => script.pop_front().expect("more than one"),
            Some(script) => script.front().cloned().unwrap_or(Play::Serve),
        };
        drop(plays);
        self.calls.lock().expect("unpoisoned").push((Instant::now(), member, account));
        (play, visits)
    }
}

struct Visit<'a> {
    script: &'a Script,
    name: String,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if let Ok(mut open) = self.script.open.lock()
            && let Some(entry) = open.get_mut(&self.name)
        {
            entry.0 -= 1;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Beats(VecDeque<Result<Beat, Failure>>);

impl EventSource for Beats {
    type Event = &'static str;

    async fn next(&mut self) -> Result<Option<Piece<&'static str>>, Failure> {
        match self.0.pop_front() {
            None => Ok(None),
            Some(Err(failure)) => Err(failure),
            Some(Ok(Beat::Role)) => Ok(Some(Piece::Other("role", 10))),
            Some(Ok(Beat::Quiet)) => Ok(Some(Piece::Quiet)),
            Some(Ok(Beat::Text(text))) => Ok(Some(Piece::Content(text))),
            Some(Ok(Beat::Wait(ms))) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(Some(Piece::Quiet))
            }
        }
    }
}

impl Upstream for Script {
    type Request = ();
    type Answer = String;
    type Stream = Beats;

    async fn whole(&self, order: Order<'_, ()>) -> Result<Whole<String>, Failure> {
        let (play, _visits) = self.enter(&order);
        if matches!(play, Play::HangBeforeSending) {
            std::future::pending::<()>().await;
        }
        let unsent = matches!(&play, Play::Fail(failure) if failure.class == Class::NotSent);
        if !unsent {
            order.sent.set();
        }
        let mut usage = None;
        match play {
            Play::Fail(failure) => return Err(failure),
            Play::Hang => std::future::pending().await,
            Play::After(wait) => tokio::time::sleep(wait).await,
            Play::Busy(wait, each) => {
                let others = self.open(&order.member.name).saturating_sub(1);
                tokio::time::sleep(wait + each * others).await;
            }
            Play::Use(used) => usage = Some(used),
            Play::FailAfter(wait, failure) => {
                tokio::time::sleep(wait).await;
                return Err(failure);
            }
            Play::Panic => panic!("the adapter panics, as the test wants it to"),
            _ => tokio::task::yield_now().await,
        }
        let answer = order.member.name.to_string();
        Ok(Whole { answer, usage, provider_task_id: None })
    }

    async fn stream(&self, order: Order<'_, ()>) -> Result<Beats, Failure> {
        let (play, _visits) = self.enter(&order);
        order.sent.set();
        match play {
            Play::Stream(beats) => Ok(Beats(beats.into())),
            Play::Fail(failure) => Err(failure),
            Play::Hang => std::future::pending().await,
            _ => Ok(Beats(VecDeque::from([Ok(Beat::Text("hello"))]))),
        }
    }
}

pub(crate) fn fail(class: Class) -> Play {
    Play::Fail(Failure::new(class, "scripted"))
}

pub(crate) fn fail_after(wait: Duration, class: Class) -> Play {
    Play::FailAfter(wait, Failure::new(class, "scripted"))
}

/// A 429 with Retry-After, in seconds.
pub(crate) fn rate_limited(after: u64) -> Play {
    Play::Fail(Failure::new(Class::RateLimited, "429").with_retry_after(Some(Duration::from_secs(after))))
}

/// A refusal because the request is longer than the model's context.
pub(crate) fn too_long() -> Play {
    Play::Fail(Failure { exceeds_context: true, ..Failure::new(Class::Request, "too long") })
}

/// How a connection that is cut reads.
pub(crate) fn cut() -> Failure {
    Failure::new(Class::Unknown, "cut")
}
