//! What one pick costs, by the number of members, healthy and half open.

use std::sync::Arc;
use std::time::Duration;

use divan::{Bencher, black_box};
use forebay_engine::clock::{Clock, Moment, TokioClock};
use forebay_engine::policy::PoolPolicy;
use forebay_engine::random::ThreadRandom;
use forebay_engine::select::Wish;
use forebay_engine::{
    Account, AccountId, Binding, Capability, Features, LocalState, Member, ModelId, Needs, Pool, Priority,
    State, Weight,
};

fn main() {
    divan::main();
}

fn pool(size: usize, open: usize, now: Moment) -> Pool {
    let state = LocalState::new();
    let policy = PoolPolicy::default();
    let members = (0..size).map(|n| {
        let model = ModelId(format!("model-{n}").into());
        let of_model = state.model(&model, policy.breaker);
        if n < open {
            of_model.breaker.force_open(now + Duration::from_secs(3_600), now);
        }
        let id = AccountId(format!("account-{}", n % 10).into());
        let account = Account {
            label: "account".into(),
            rate: None,
            max_concurrency: Some(1_000_000),
            is_enabled: true,
            key_revision: 1,
            state: state.account(&id, 1),
            id: id.clone(),
        };
        let binding = Binding {
            account: Arc::new(account),
            priority: Priority::default(),
            cooldown: of_model.binding_cooldown(&id),
        };
        Member {
            name: "member".into(),
            provider: "provider".into(),
            weight: Weight::try_new(1 + n as i64 % 10).expect("a weight"),
            priority: Priority::default(),
            max_concurrency: Some(1_000_000),
            features: Features::default(),
            needs_account: true,
            accounts: vec![binding],
            state: of_model,
            model,
        }
    });
    let members = members.collect();
    Pool::new("bench".parse().expect("a key"), Capability::Text, policy, members, &state)
}

#[divan::bench(args = [10, 100, 1000])]
fn all_usable(bencher: Bencher<'_, '_>, size: usize) {
    let clock = TokioClock::starting_at(Moment::from_millis(1_700_000_000_000));
    let (pool, wish, random) = (pool(size, 0, clock.now()), Wish::any(Needs::default()), ThreadRandom);
    bencher.bench_local(|| black_box(pool.pick(&wish, &random, clock.now()).is_ok()));
}

#[divan::bench(args = [10, 100, 1000])]
fn half_of_them_open(bencher: Bencher<'_, '_>, size: usize) {
    let clock = TokioClock::starting_at(Moment::from_millis(1_700_000_000_000));
    let (pool, wish, random) = (pool(size, size / 2, clock.now()), Wish::any(Needs::default()), ThreadRandom);
    bencher.bench_local(|| black_box(pool.pick(&wish, &random, clock.now()).is_ok()));
}
