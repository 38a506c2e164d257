//! A journal and an observer that remember what they were told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_engine::attempt::{AttemptEnded, AttemptKind, AttemptSent};
use forebay_engine::events::{BreakerMoved, Observer};
use forebay_engine::{Class, GroupKey, Journal};

/// What the journal was told.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Recorded>>);

#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) sent: Vec<AttemptSent>,
    pub(crate) ended: Vec<AttemptEnded>,
}

impl Record {
    pub(crate) fn kinds(&self) -> Vec<AttemptKind> {
        self.0.lock().expect("unpoisoned").sent.iter().map(|sent| sent.kind).collect()
    }
    pub(crate) fn waits(&self) -> Vec<Duration> {
        self.0.lock().expect("unpoisoned").sent.iter().map(|sent| sent.waited).collect()
    }
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.0.lock().expect("unpoisoned").sent.iter().map(|sent| sent.reason.clone()).collect()
    }
    /// Who was asked, with which account, and why: `a x initial`.
    pub(crate) fn steps(&self) -> Vec<String> {
        let recorded = self.0.lock().expect("unpoisoned");
        let step = |sent: &AttemptSent| {
            let account = sent.account.as_ref().map_or_else(String::new, |(_, label)| format!(" {label}"));
            format!("{}{account} {}", sent.member.name, sent.kind.as_str())
        };
        recorded.sent.iter().map(step).collect()
    }
    pub(crate) fn end(&self, ended: Option<AttemptEnded>) {
        self.0.lock().expect("unpoisoned").ended.extend(ended);
    }
    pub(crate) fn ended(&self) -> Vec<AttemptEnded> {
        self.0.lock().expect("unpoisoned").ended.clone()
    }
}

impl Journal for Record {
    type Refusal = &'static str;

    async fn sent(&self, before: Option<AttemptEnded>, next: AttemptSent) -> Result<(), &'static str> {
        let mut recorded = self.0.lock().expect("unpoisoned");
        recorded.ended.extend(before);
        recorded.sent.push(next);
        Ok(())
    }
}

/// What the observer was told.
#[derive(Default)]
pub(crate) struct Heard {
    moves: Mutex<Vec<BreakerMoved>>,
    switches: Mutex<Vec<String>>,
}

impl Heard {
    pub(crate) fn moves(&self) -> Vec<BreakerMoved> {
        self.moves.lock().expect("unpoisoned").clone()
    }
    /// `pool: from → to after class`.
    pub(crate) fn switches(&self) -> Vec<String> {
        self.switches.lock().expect("unpoisoned").clone()
    }
}

impl Observer for Heard {
    fn breaker_moved(&self, moved: &BreakerMoved) {
        self.moves.lock().expect("unpoisoned").push(moved.clone());
    }
    fn switched(&self, pool: &GroupKey, from: &str, to: &str, class: Class) {
        self.switches.lock().expect("unpoisoned").push(format!("{pool}: {from} → {to} after {class}"));
    }
}
