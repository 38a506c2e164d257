//! The settings of the open pool: every field with what it does and its default.

use leptos::prelude::*;

use super::api::{BreakerPolicy, PoolDetail, PoolEdit, Strategy};
use super::page::PoolActs;
use crate::frame::Frame;
use crate::ui::form::{PostForm, SubmitButton};
use crate::ui::field::{CheckField, InputField, SelectField};
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
                <General settings=settings.clone()/>
                <Breaker settings=settings.clone() breaker/>
                <Routing settings=settings.clone()/>
                <Waiting settings=settings.clone()/>
                <Answers settings/>
            </fieldset>
            <div class="panel-foot">
                <FormProblem act/>
                {may_write.then(|| view! {
                    <SubmitButton act label=t.common.save waiting=t.common.saving/>
                })}
            </div>
        </PostForm>
    }
    .into_any()
}

/// Before each field's name, to make its id.
const PREFIX: &str = "pool";

#[component]
fn General(settings: PoolEdit) -> impl IntoView {
    let t = use_text();
    let f = &t.pools.f;
    view! {
        <section>
            <h3>{t.pools.group_general}</h3>
            <InputField name="edit[name]" prefix=PREFIX.to_owned() kind="text"
                label=f.name.label help=f.name.help value=RwSignal::new(settings.name)/>
            <InputField name="edit[public_alias]" prefix=PREFIX.to_owned() kind="text" optional=true
                label=f.public_alias.label help=f.public_alias.help
                value=optional(settings.public_alias) default=t.common.none/>
            <CheckField name="edit[is_active]" prefix=PREFIX.to_owned()
                label=f.is_active.label help=f.is_active.help checked=settings.is_active default=true/>
            <InputField name="edit[region]" prefix=PREFIX.to_owned() kind="text" optional=true
                label=f.region.label help=f.region.help value=optional(settings.region) default=t.common.none/>
        </section>
    }
    .into_any()
}

#[component]
fn Breaker(settings: PoolEdit, breaker: BreakerFields) -> impl IntoView {
    let t = use_text();
    let f = &t.pools.f;
    let preset = PoolEdit::default();
    let policies =
        BreakerPolicy::ALL.map(|policy| (policy.as_str().to_owned(), (t.pools.policy)(policy).to_owned())).into();
    view! {
        <section>
            <h3>{t.pools.group_breaker}</h3>
            <div class="presets" role="group" aria-label=t.pools.presets>
                <button type="button" class="button button-small" on:click=move |_| breaker.consecutive(5, 60)>
                    {t.pools.preset_standard}
                </button>
                <button type="button" class="button button-small" on:click=move |_| breaker.consecutive(2, 30)>
                    {t.pools.preset_sensitive}
                </button>
                <button type="button" class="button button-small" on:click=move |_| breaker.consecutive(3, 180)>
                    {t.pools.preset_patient}
                </button>
                <button type="button" class="button button-small" on:click=move |_| breaker.rate()>
                    {t.pools.preset_rate}
                </button>
                <p class="field-help">{t.pools.presets_help}</p>
            </div>
            <SelectField name="edit[breaker_policy]" prefix=PREFIX.to_owned()
                label=f.breaker_policy.label help=f.breaker_policy.help choices=policies value=breaker.policy
                default=(t.pools.policy)(preset.breaker_policy)/>
            <InputField name="edit[circuit_failure_threshold]" prefix=PREFIX.to_owned() min="1" step="1"
                label=f.circuit_failure_threshold.label help=f.circuit_failure_threshold.help
                value=breaker.threshold default=preset.circuit_failure_threshold.to_string()/>
            <InputField name="edit[circuit_recovery_seconds]" prefix=PREFIX.to_owned() min="1" step="1"
                label=f.circuit_recovery_seconds.label help=f.circuit_recovery_seconds.help
                value=breaker.recovery default=preset.circuit_recovery_seconds.to_string()/>
            <CheckField name="edit[recovery_backoff]" prefix=PREFIX.to_owned()
                label=f.recovery_backoff.label help=f.recovery_backoff.help
                checked=settings.recovery_backoff default=preset.recovery_backoff/>
        </section>
        <section>
            <h3>{t.pools.group_rate}</h3>
            <InputField name="edit[error_rate_threshold]" prefix=PREFIX.to_owned() min="0.01" max="1" step="0.01"
                label=f.error_rate_threshold.label help=f.error_rate_threshold.help
                value=breaker.rate default=preset.error_rate_threshold.to_string()/>
            <InputField name="edit[error_rate_window_seconds]" prefix=PREFIX.to_owned() min="1" step="1"
                label=f.error_rate_window_seconds.label help=f.error_rate_window_seconds.help
                value=breaker.window default=preset.error_rate_window_seconds.to_string()/>
            <InputField name="edit[error_rate_min_calls]" prefix=PREFIX.to_owned() min="1" step="1"
                label=f.error_rate_min_calls.label help=f.error_rate_min_calls.help
                value=text(settings.error_rate_min_calls) default=preset.error_rate_min_calls.to_string()/>
            <InputField name="edit[error_rate_open_seconds]" prefix=PREFIX.to_owned() min="1" step="1"
                label=f.error_rate_open_seconds.label help=f.error_rate_open_seconds.help
                value=breaker.open default=preset.error_rate_open_seconds.to_string()/>
            <InputField name="edit[half_open_probes]" prefix=PREFIX.to_owned() min="1" step="1"
                label=f.half_open_probes.label help=f.half_open_probes.help
                value=text(settings.half_open_probes) default=preset.half_open_probes.to_string()/>
            <InputField name="edit[half_open_success_rate]" prefix=PREFIX.to_owned() min="0.01" max="1" step="0.01"
                label=f.half_open_success_rate.label help=f.half_open_success_rate.help
                value=breaker.success default=preset.half_open_success_rate.to_string()/>
        </section>
    }
    .into_any()
}

#[component]
fn Routing(settings: PoolEdit) -> impl IntoView {
    let t = use_text();
    let f = &t.pools.f;
    let preset = PoolEdit::default();
    let strategies =
        Strategy::ALL.map(|s| (s.as_str().to_owned(), (t.pools.strategy)(s).to_owned())).into();
    view! {
        <section>
            <h3>{t.pools.group_routing}</h3>
            <SelectField name="edit[strategy]" prefix=PREFIX.to_owned()
                label=f.strategy.label help=f.strategy.help choices=strategies
                value=RwSignal::new(settings.strategy.as_str().to_owned())
                default=(t.pools.strategy)(preset.strategy)/>
            <CheckField name="edit[dynamic_weights]" prefix=PREFIX.to_owned()
                label=f.dynamic_weights.label help=f.dynamic_weights.help
                checked=settings.dynamic_weights default=preset.dynamic_weights/>
            <InputField name="edit[latency_target_ms]" prefix=PREFIX.to_owned() min="1" step="1" optional=true
                label=f.latency_target_ms.label help=f.latency_target_ms.help
                value=optional(settings.latency_target_ms) default=f.median/>
            <CheckField name="edit[switch_first]" prefix=PREFIX.to_owned()
                label=f.switch_first.label help=f.switch_first.help
                checked=settings.switch_first default=preset.switch_first/>
            <CheckField name="edit[retry_unknown]" prefix=PREFIX.to_owned()
                label=f.retry_unknown.label help=f.retry_unknown.help
                checked=settings.retry_unknown default=preset.retry_unknown/>
            <InputField name="edit[deep_thinking_model]" prefix=PREFIX.to_owned() kind="text" optional=true
                label=f.deep_thinking_model.label help=f.deep_thinking_model.help
                value=optional(settings.deep_thinking_model) default=t.common.none/>
        </section>
    }
    .into_any()
}

#[component]
fn Waiting(settings: PoolEdit) -> impl IntoView {
    let t = use_text();
    let f = &t.pools.f;
    let preset = PoolEdit::default();
    view! {
        <section>
            <h3>{t.pools.group_waiting}</h3>
            <InputField name="edit[queue_timeout_ms]" prefix=PREFIX.to_owned() min="0" step="1"
                label=f.queue_timeout_ms.label help=f.queue_timeout_ms.help
                value=text(settings.queue_timeout_ms) default=preset.queue_timeout_ms.to_string()/>
            <InputField name="edit[queue_max]" prefix=PREFIX.to_owned() min="0" step="1" optional=true
                label=f.queue_max.label help=f.queue_max.help value=optional(settings.queue_max) default=f.twice/>
            <InputField name="edit[first_packet_timeout_ms]" prefix=PREFIX.to_owned() min="1" step="1"
                label=f.first_packet_timeout_ms.label help=f.first_packet_timeout_ms.help
                value=text(settings.first_packet_timeout_ms) default=preset.first_packet_timeout_ms.to_string()/>
            <InputField name="edit[idle_timeout_ms]" prefix=PREFIX.to_owned() min="1" step="1"
                label=f.idle_timeout_ms.label help=f.idle_timeout_ms.help
                value=text(settings.idle_timeout_ms) default=preset.idle_timeout_ms.to_string()/>
            <InputField name="edit[content_timeout_ms]" prefix=PREFIX.to_owned() min="1" step="1"
                label=f.content_timeout_ms.label help=f.content_timeout_ms.help
                value=text(settings.content_timeout_ms) default=preset.content_timeout_ms.to_string()/>
        </section>
    }
    .into_any()
}

#[component]
fn Answers(settings: PoolEdit) -> impl IntoView {
    let t = use_text();
    let f = &t.pools.f;
    let preset = PoolEdit::default();
    view! {
        <section>
            <h3>{t.pools.group_answers}</h3>
            <InputField name="edit[min_content_chars]" prefix=PREFIX.to_owned() min="1" step="1"
                label=f.min_content_chars.label help=f.min_content_chars.help
                value=text(settings.min_content_chars) default=preset.min_content_chars.to_string()/>
            <InputField name="edit[fallback_template]" prefix=PREFIX.to_owned() kind="text" optional=true
                label=f.fallback_template.label help=f.fallback_template.help
                value=optional(settings.fallback_template) default=t.common.none/>
        </section>
    }
    .into_any()
}

fn text(value: impl ToString) -> RwSignal<String> {
    RwSignal::new(value.to_string())
}

fn optional(value: Option<impl ToString>) -> RwSignal<String> {
    RwSignal::new(value.map(|value| value.to_string()).unwrap_or_default())
}
