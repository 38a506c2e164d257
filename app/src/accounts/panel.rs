//! The open account: limits, key, bindings, cooldown; and the form for a new one.

use leptos::prelude::*;
use leptos_router::components::A;

use super::api::{AccountChoices, AccountEdit, AccountRow, BindingRow, LiveAccount};
use super::page::{AccountActs, PATH};
use crate::frame::Frame;
use crate::ui::confirm::{Confirm, ConfirmButtons};
use crate::ui::field::{Controls, Range, Select};
use crate::ui::form::{PostForm, SubmitButton};
use crate::ui::notice::FormProblem;
use crate::ui::text::use_text;
use crate::ui::when::when;

/// A new account.
#[component]
pub(super) fn AddForm(choices: AccountChoices) -> impl IntoView {
    let t = use_text();
    let act = expect_context::<AccountActs>().add;
    if choices.providers.is_empty() {
        return view! { <p class="notice">{t.accounts.no_providers}</p> }.into_any();
    }
    let first = choices.providers.first().cloned().unwrap_or_default();
    let providers: Vec<_> = choices.providers.into_iter().map(|key| (key.clone(), key)).collect();
    let account = Controls { prefix: "new", of: "account" };
    view! {
        <section class="panel-body panel-new">
            <h2>{t.accounts.add}</h2>
            <PostForm act class="columns">
                <div>
                    {account.text("label", t.accounts.label, String::new())}
                    {account.select("provider", t.accounts.provider, providers, RwSignal::new(first), "")}
                    {account.secret("key", t.accounts.key, RwSignal::new(String::new()))}
                </div>
                <div>
                    {limits(Controls { prefix: "new", of: "account[settings]" }, AccountEdit::default())}
                    <FormProblem act/>
                    <div class="panel-foot">
                        <A href=PATH attr:class="button">
                            {t.common.close}
                        </A>
                        <SubmitButton act label=t.accounts.add waiting=t.accounts.adding/>
                    </div>
                </div>
            </PostForm>
        </section>
    }
    .into_any()
}

/// One account in full.
#[component]
pub(super) fn Panel(
    account: AccountRow,
    choices: AccountChoices,
    live: Memo<Option<LiveAccount>>,
) -> impl IntoView {
    let t = use_text();
    let acts = expect_context::<AccountActs>();
    let may_write = expect_context::<Frame>().may_write();
    let AccountRow { label, provider, settings, bindings, .. } = account;
    let prefix = format!("account-{label}");
    let key_and_cooldown = may_write.then(|| {
        view! {
            <section>
                <KeyForm label=label.clone()/>
                <ClearForm label=label.clone() live/>
            </section>
        }
        .into_any()
    });
    let of = label.clone();
    view! {
        <div class="columns columns-3">
            <section>
                <h3>{t.accounts.limits}</h3>
                <PostForm act=acts.edit>
                    <input type="hidden" name="label" value=of/>
                    <fieldset disabled=!may_write>
                        {limits(Controls { prefix: &prefix, of: "edit" }, settings)}
                    </fieldset>
                    <FormProblem act=acts.edit/>
                    {may_write.then(|| view! {
                        <SubmitButton act=acts.edit label=t.common.save waiting=t.common.saving/>
                    }.into_any())}
                </PostForm>
            </section>
            <section>
                <h3>{t.accounts.bindings}</h3>
                <p class="field-help">{t.accounts.bindings_help}</p>
                <Bindings label provider bindings choices may_write/>
            </section>
            {key_and_cooldown}
        </div>
    }
    .into_any()
}

/// The fields of `AccountEdit`.
fn limits(controls: Controls<'_>, settings: AccountEdit) -> Vec<AnyView> {
    let t = use_text();
    let preset = AccountEdit::default();
    let (a, unlimited) = (&t.accounts, t.common.unlimited);
    let max_rps = RwSignal::new(settings.max_rps.to_string());
    vec![
        controls.number("max_rps", a.max_rps, max_rps, preset.max_rps, Range::ABOVE_0),
        controls.optional_number(
            "max_concurrency",
            a.max_concurrency,
            settings.max_concurrency,
            unlimited,
            Range::FROM_1,
        ),
        controls.optional_number("max_tpm", a.max_tpm, settings.max_tpm, unlimited, Range::FROM_1),
        controls.optional_number(
            "daily_limit",
            a.daily_limit,
            settings.daily_limit,
            unlimited,
            Range::FROM_1,
        ),
        controls.optional_text("region", a.region, settings.region, t.common.none),
        controls.switch("is_enabled", a.in_use, settings.is_enabled, preset.is_enabled),
    ]
}

#[component]
fn Bindings(
    label: String,
    provider: String,
    bindings: Vec<BindingRow>,
    choices: AccountChoices,
    may_write: bool,
) -> impl IntoView {
    let t = use_text();
    let acts = expect_context::<AccountActs>();
    let free: Vec<_> = choices
        .models
        .into_iter()
        .filter(|model| model.provider == provider && bindings.iter().all(|b| b.model != model.name))
        .map(|model| (model.name.clone(), model.name))
        .collect();
    let rows = bindings
        .into_iter()
        .map(|binding| {
            let unbind = may_write
                .then(|| view! { <Unbind label=label.clone() model=binding.model.clone()/> }.into_any());
            view! {
                <tr data-binding=binding.model>
                    <th scope="row">{binding.model.clone()}</th>
                    <td class="number">{binding.priority}</td>
                    <td class="row-actions">{unbind}</td>
                </tr>
            }
            .into_any()
        })
        .collect_view();
    let bind = may_write.then(|| {
        if free.is_empty() {
            return view! { <p class="muted">{t.accounts.nothing_to_bind}</p> }.into_any();
        }
        let first = free.first().map(|(name, _)| name.clone()).unwrap_or_default();
        let (model_id, priority_id) = (format!("bind-model-{label}"), format!("bind-priority-{label}"));
            view! {
            <PostForm act=acts.bind class="inline-form bind-form">
                <input type="hidden" name="label" value=label.clone()/>
                <label for=model_id.clone()>{t.accounts.model}</label>
                <Select id=model_id name="model" choices=free value=RwSignal::new(first)/>
                <label for=priority_id.clone()>{t.accounts.priority}</label>
                <input id=priority_id class="cell" name="priority" type="number" min="0" step="1" value="0" required/>
                <SubmitButton act=acts.bind label=t.accounts.bind waiting=t.common.working class="button"/>
            </PostForm>
            <FormProblem act=acts.bind/>
        }
        .into_any()
    });
    view! {
        <table class="bindings">
            <tbody>{rows}</tbody>
        </table>
        {bind}
    }
    .into_any()
}

#[component]
fn Unbind(label: String, model: String) -> impl IntoView {
    let t = use_text();
    let act = expect_context::<AccountActs>().unbind;
    let id = format!("unbind-{label}-{model}");
    view! {
        <Confirm
            id=id.clone()
            label=t.accounts.unbind
            class="button button-small"
            question=(t.accounts.unbind_ask)(&label, &model)
        >
            <PostForm act>
                <input type="hidden" name="label" value=label/>
                <input type="hidden" name="model" value=model/>
                <ConfirmButtons of=id go=t.accounts.unbind/>
            </PostForm>
        </Confirm>
    }
}

/// Write-only: nothing of the old key is shown, nothing of the new one is kept in the page.
#[component]
fn KeyForm(label: String) -> impl IntoView {
    let t = use_text();
    let act = expect_context::<AccountActs>().replace_key;
    let prefix = format!("replace-{label}");
    let typed = RwSignal::new(String::new());
    Effect::new(move || {
        if act.answer().is_some() {
            typed.set(String::new());
        }
    });
    view! {
        <h3>{t.accounts.replace_key}</h3>
        <PostForm act>
            <input type="hidden" name="label" value=label.clone()/>
            {Controls { prefix: &prefix, of: "" }.secret("key", t.accounts.new_key, typed)}
            <FormProblem act/>
            <SubmitButton act label=t.accounts.replace_key waiting=t.common.saving class="button"/>
        </PostForm>
    }
}

/// Shown while something cools.
#[component]
fn ClearForm(label: String, live: Memo<Option<LiveAccount>>) -> impl IntoView {
    let t = use_text();
    let act = expect_context::<AccountActs>().clear;
    let label = StoredValue::new(label);
    let cools =
        Memo::new(move |_| live.with(|live| live.as_ref().is_some_and(|live| !live.cooldowns.is_empty())));
    when(
        move || cools.get(),
        move || {
            let label = label.get_value();
            let id = format!("clear-{label}");
            view! {
                <h3>{t.accounts.cooling}</h3>
                <Confirm id=id.clone() label=t.accounts.clear question=(t.accounts.clear_ask)(&label)>
                    <PostForm act>
                        <input type="hidden" name="label" value=label/>
                        <ConfirmButtons of=id go=t.accounts.clear/>
                    </PostForm>
                </Confirm>
            }
            .into_any()
        },
    )
}
