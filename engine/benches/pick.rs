//! What one pick costs, by the number of members and by strategy.

use std::sync::Arc;
use std::time::Duration;

use divan::{Bencher, black_box};
use forebay_engine::clock::{Clock, Moment, TokioClock};
use forebay_engine::policy::{PoolPolicy, Strategy};
use forebay_engine::random::ThreadRandom;
use forebay_engine::select::Wish;
use forebay_engine::{
    Account, AccountId, Binding, Capability, Costs, Features, LocalState, Member, ModelId, Needs, Pool,
    Priority, State, Usage, Weight,
};

fn main() {
    divan::main();
}

fn pool(size: usize, open: usize, policy: PoolPolicy, now: Moment) -> Pool {
    let state = LocalState::new();
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
            max_tpm: None,
            daily_limit: None,
            region: None,
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
            costs: Costs { output: n as u64 % 10, ..Costs::default() },
            region: None,
            needs_account: true,
            accounts: vec![binding],
            state: of_model,
            model,
        }
    });
    let members = members.collect();
    Pool::new("bench".parse().expect("a key"), Capability::Text, policy, members, &state)
}

/// Picks from `size` members of which `open` have an open breaker.
fn bench(bencher: Bencher<'_, '_>, size: usize, open: usize, policy: PoolPolicy) {
    let clock = TokioClock::starting_at(Moment::from_millis(1_700_000_000_000));
    let (pool, needs, random) = (pool(size, open, policy, clock.now()), Needs::default(), ThreadRandom);
    let wish = Wish { expected: Usage { output_tokens: 100, ..Usage::NONE }, ..Wish::any(&needs) };
    bencher.bench_local(|| black_box(pool.pick(&wish, &random, clock.now()).is_ok()));
}

fn strategy(strategy: Strategy) -> PoolPolicy {
    PoolPolicy { strategy, ..PoolPolicy::default() }
}

#[divan::bench(args = [10, 100, 1000])]
fn all_usable(bencher: Bencher<'_, '_>, size: usize) {
    bench(bencher, size, 0, PoolPolicy::default());
}

#[divan::bench(args = [10, 100, 1000])]
fn half_of_them_open(bencher: Bencher<'_, '_>, size: usize) {
    bench(bencher, size, size / 2, PoolPolicy::default());
}

#[divan::bench(args = [10, 100, 1000])]
fn dynamic_weights(bencher: Bencher<'_, '_>, size: usize) {
    bench(bencher, size, 0, PoolPolicy { dynamic_weights: true, ..PoolPolicy::default() });
}

#[divan::bench(args = [10, 100, 1000])]
fn round_robin(bencher: Bencher<'_, '_>, size: usize) {
    bench(bencher, size, 0, strategy(Strategy::RoundRobin));
}

#[divan::bench(args = [10, 100, 1000])]
fn least_latency(bencher: Bencher<'_, '_>, size: usize) {
    bench(bencher, size, 0, strategy(Strategy::LeastLatency));
}

#[divan::bench(args = [10, 100, 1000])]
fn lowest_cost(bencher: Bencher<'_, '_>, size: usize) {
    bench(bencher, size, 0, strategy(Strategy::LowestCost));
}
