//! The settings of the open pool: every field with what it does and its default.

use leptos::prelude::*;

use super::api::{BreakerPolicy, PoolDetail, PoolEdit, Strategy};
use super::page::PoolActs;
use crate::frame::Frame;
use crate::ui::field::{Controls, Range};
use crate::ui::form::{PostForm, SubmitButton};
use crate::ui::notice::FormProblem;
use crate::ui::text::use_text;

/// The breaker fields that a preset fills in.
#[derive(Clone, Copy)]
struct BreakerFields {
    policy: RwSignal<String>,
    threshold: RwSignal<String>,
    recovery: RwSignal<String>,
    rate: RwSignal<String>,
    window: RwSignal<String>,
    open: RwSignal<String>,
    success: RwSignal<String>,
}

impl BreakerFields {
    fn of(edit: &PoolEdit) -> Self {
        Self {
            policy: RwSignal::new(edit.breaker_policy.as_str().to_owned()),
            threshold: text(edit.circuit_failure_threshold),
            recovery: text(edit.circuit_recovery_seconds),
            rate: text(edit.error_rate_threshold),
            window: text(edit.error_rate_window_seconds),
            open: text(edit.error_rate_open_seconds),
            success: text(edit.half_open_success_rate),
        }
    }

    fn consecutive(&self, threshold: u32, recovery: u32) {
        self.policy.set(BreakerPolicy::Consecutive.as_str().to_owned());
        self.threshold.set(threshold.to_string());
        self.recovery.set(recovery.to_string());
    }

    fn rate(&self) {
        let preset = PoolEdit::default();
        self.policy.set(BreakerPolicy::ErrorRate.as_str().to_owned());
        self.rate.set(preset.error_rate_threshold.to_string());
        self.window.set(preset.error_rate_window_seconds.to_string());
        self.open.set(preset.error_rate_open_seconds.to_string());
        self.success.set(preset.half_open_success_rate.to_string());
    }
}

#[component]
pub(super) fn Settings(detail: PoolDetail) -> impl IntoView {
    let t = use_text();
    let act = expect_context::<PoolActs>().edit;
    let may_write = expect_context::<Frame>().may_write();
    let PoolDetail { card, settings, .. } = detail;
    let breaker = BreakerFields::of(&settings);
    view! {
        <PostForm act class="settings">
            <input type="hidden" name="key" value=card.key/>
            <fieldset disabled=!may_write>
                {group(t.pools.group_general, general(&settings))}
                <section>
                    <h3>{t.pools.group_breaker}</h3>
                    <Presets breaker/>
                    {breaker_fields(&settings, breaker)}
                </section>
                {group(t.pools.group_rate, rate(&settings, breaker))}
                {group(t.pools.group_routing, routing(&settings))}
                {group(t.pools.group_waiting, waiting(&settings))}
                {group(t.pools.group_answers, answers(&settings))}
            </fieldset>
            <div class="panel-foot">
                <FormProblem act/>
                {may_write.then(|| view! {
                    <SubmitButton act label=t.common.save waiting=t.common.saving/>
                }.into_any())}
            </div>
        </PostForm>
    }
    .into_any()
}

const CONTROLS: Controls<'static> = Controls { prefix: "pool", of: "edit" };

fn group(title: &'static str, fields: Vec<AnyView>) -> AnyView {
    view! {
        <section>
            <h3>{title}</h3>
            {fields}
        </section>
    }
    .into_any()
}

/// Buttons that fill in the breaker's fields.
#[component]
fn Presets(breaker: BreakerFields) -> impl IntoView {
    let t = use_text();
    let preset = |label: &'static str, fill: fn(&BreakerFields)| {
        view! {
            <button type="button" class="button button-small" on:click=move |_| fill(&breaker)>
                {label}
            </button>
        }
        .into_any()
    };
    view! {
        <div class="presets" role="group" aria-label=t.pools.presets>
            {preset(t.pools.preset_standard, |fields| fields.consecutive(5, 60))}
            {preset(t.pools.preset_sensitive, |fields| fields.consecutive(2, 30))}
            {preset(t.pools.preset_patient, |fields| fields.consecutive(3, 180))}
            {preset(t.pools.preset_rate, BreakerFields::rate)}
            <p class="field-help">{t.pools.presets_help}</p>
        </div>
    }
    .into_any()
}

fn general(now: &PoolEdit) -> Vec<AnyView> {
    let t = use_text();
    let f = &t.pools.f;
    let none = t.common.none;
    vec![
        CONTROLS.text("name", f.name, now.name.clone()),
        CONTROLS.optional_text("public_alias", f.public_alias, now.public_alias.clone(), none),
        CONTROLS.switch("is_active", f.is_active, now.is_active, true),
        CONTROLS.optional_text("region", f.region, now.region.clone(), none),
    ]
}

fn breaker_fields(now: &PoolEdit, breaker: BreakerFields) -> Vec<AnyView> {
    let t = use_text();
    let f = &t.pools.f;
    let preset = PoolEdit::default();
    let policies = BreakerPolicy::ALL.map(|p| (p.as_str().to_owned(), (t.pools.policy)(p).to_owned())).into();
    let policy = (t.pools.policy)(preset.breaker_policy);
    vec![
        CONTROLS.select("breaker_policy", f.breaker_policy, policies, breaker.policy, policy),
        CONTROLS.number(
            "circuit_failure_threshold",
            f.circuit_failure_threshold,
            breaker.threshold,
            preset.circuit_failure_threshold,
            Range::FROM_1,
        ),
        CONTROLS.number(
            "circuit_recovery_seconds",
            f.circuit_recovery_seconds,
            breaker.recovery,
            preset.circuit_recovery_seconds,
            Range::FROM_1,
        ),
        CONTROLS.switch(
            "recovery_backoff",
            f.recovery_backoff,
            now.recovery_backoff,
            preset.recovery_backoff,
        ),
    ]
}

fn rate(now: &PoolEdit, breaker: BreakerFields) -> Vec<AnyView> {
    let f = &use_text().pools.f;
    let preset = PoolEdit::default();
    vec![
        CONTROLS.number(
            "error_rate_threshold",
            f.error_rate_threshold,
            breaker.rate,
            preset.error_rate_threshold,
            Range::SHARE,
        ),
        CONTROLS.number(
            "error_rate_window_seconds",
            f.error_rate_window_seconds,
            breaker.window,
            preset.error_rate_window_seconds,
            Range::FROM_1,
        ),
        CONTROLS.number(
            "error_rate_min_calls",
            f.error_rate_min_calls,
            text(now.error_rate_min_calls),
            preset.error_rate_min_calls,
            Range::FROM_1,
        ),
        CONTROLS.number(
            "error_rate_open_seconds",
            f.error_rate_open_seconds,
            breaker.open,
            preset.error_rate_open_seconds,
            Range::FROM_1,
        ),
        CONTROLS.number(
            "half_open_probes",
            f.half_open_probes,
            text(now.half_open_probes),
            preset.half_open_probes,
            Range::FROM_1,
        ),
        CONTROLS.number(
            "half_open_success_rate",
            f.half_open_success_rate,
            breaker.success,
            preset.half_open_success_rate,
            Range::SHARE,
        ),
    ]
}

fn routing(now: &PoolEdit) -> Vec<AnyView> {
    let t = use_text();
    let f = &t.pools.f;
    let preset = PoolEdit::default();
    let strategies = Strategy::ALL.map(|s| (s.as_str().to_owned(), (t.pools.strategy)(s).to_owned())).into();
    let strategy = RwSignal::new(now.strategy.as_str().to_owned());
    vec![
        CONTROLS.select("strategy", f.strategy, strategies, strategy, (t.pools.strategy)(preset.strategy)),
        CONTROLS.switch("dynamic_weights", f.dynamic_weights, now.dynamic_weights, preset.dynamic_weights),
        CONTROLS.optional_number(
            "latency_target_ms",
            f.latency_target_ms,
            now.latency_target_ms,
            f.median,
            Range::FROM_1,
        ),
        CONTROLS.switch("switch_first", f.switch_first, now.switch_first, preset.switch_first),
        CONTROLS.switch("retry_unknown", f.retry_unknown, now.retry_unknown, preset.retry_unknown),
        CONTROLS.optional_text(
            "deep_thinking_model",
            f.deep_thinking_model,
            now.deep_thinking_model.clone(),
            t.common.none,
        ),
    ]
}

fn waiting(now: &PoolEdit) -> Vec<AnyView> {
    let f = &use_text().pools.f;
    let preset = PoolEdit::default();
    vec![
        CONTROLS.number(
            "queue_timeout_ms",
            f.queue_timeout_ms,
            text(now.queue_timeout_ms),
            preset.queue_timeout_ms,
            Range::FROM_0,
        ),
        CONTROLS.optional_number("queue_max", f.queue_max, now.queue_max, f.twice, Range::FROM_0),
        CONTROLS.number(
            "first_packet_timeout_ms",
            f.first_packet_timeout_ms,
            text(now.first_packet_timeout_ms),
            preset.first_packet_timeout_ms,
            Range::FROM_1,
        ),
        CONTROLS.number(
            "idle_timeout_ms",
            f.idle_timeout_ms,
            text(now.idle_timeout_ms),
            preset.idle_timeout_ms,
            Range::FROM_1,
        ),
        CONTROLS.number(
            "content_timeout_ms",
            f.content_timeout_ms,
            text(now.content_timeout_ms),
            preset.content_timeout_ms,
            Range::FROM_1,
        ),
    ]
}

fn answers(now: &PoolEdit) -> Vec<AnyView> {
    let t = use_text();
    let f = &t.pools.f;
    let preset = PoolEdit::default();
    vec![
        CONTROLS.number(
            "min_content_chars",
            f.min_content_chars,
            text(now.min_content_chars),
            preset.min_content_chars,
            Range::FROM_1,
        ),
        CONTROLS.optional_text(
            "fallback_template",
            f.fallback_template,
            now.fallback_template.clone(),
            t.common.none,
        ),
    ]
}

fn text(value: impl ToString) -> RwSignal<String> {
    RwSignal::new(value.to_string())
}
