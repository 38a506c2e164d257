//! The open account: limits, key, bindings, cooldown; and the form for a new one.

use leptos::prelude::*;
use leptos_router::components::A;

use super::api::{AccountChoices, AccountEdit, AccountRow, BindingRow, LiveAccount};
use super::page::{AccountActs, PATH};
use crate::frame::Frame;
use crate::ui::confirm::{Confirm, ConfirmButtons};
use crate::ui::field::{CheckField, Field, InputField, Select};
use crate::ui::form::{PostForm, SubmitButton};
use crate::ui::notice::FormProblem;
use crate::ui::text::use_text;

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
    view! {
        <section class="panel-body panel-new">
            <h2>{t.accounts.add}</h2>
            <PostForm act class="columns">
                <div>
                    <InputField name="account[label]" prefix="new".to_owned() kind="text"
                        label=t.accounts.label help=t.accounts.label_help value=RwSignal::new(String::new())/>
                    <Field id="new-provider".to_owned() label=t.accounts.provider help=t.accounts.provider_help>
                        <Select id="new-provider".to_owned() name="account[provider]" choices=providers
                            value=RwSignal::new(first)/>
                    </Field>
                    <InputField name="account[key]" prefix="new".to_owned() kind="password"
                        label=t.accounts.key help=t.accounts.key_help value=RwSignal::new(String::new())/>
                </div>
                <div>
                    <Limits of="account[settings]" prefix="new".to_owned() settings=AccountEdit::default()/>
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
pub(super) fn Panel(account: AccountRow, choices: AccountChoices, live: Memo<Option<LiveAccount>>) -> impl IntoView {
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
    });
    let of = label.clone();
    view! {
        <div class="columns columns-3">
            <section>
                <h3>{t.accounts.limits}</h3>
                <PostForm act=acts.edit>
                    <input type="hidden" name="label" value=of/>
                    <fieldset disabled=!may_write>
                        <Limits of="edit" prefix settings/>
                    </fieldset>
                    <FormProblem act=acts.edit/>
                    {may_write.then(|| view! {
                        <SubmitButton act=acts.edit label=t.common.save waiting=t.common.saving/>
                    })}
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

/// The fields of `AccountEdit`, under the name `of` in the form.
#[component]
fn Limits(of: &'static str, prefix: String, settings: AccountEdit) -> impl IntoView {
    let t = use_text();
    let preset = AccountEdit::default();
    let name = |field: &'static str| match of {
        "edit" => match field {
            "max_rps" => "edit[max_rps]",
            "max_concurrency" => "edit[max_concurrency]",
            "max_tpm" => "edit[max_tpm]",
            "daily_limit" => "edit[daily_limit]",
            "region" => "edit[region]",
            _ => "edit[is_enabled]",
        },
        _ => match field {
            "max_rps" => "account[settings][max_rps]",
            "max_concurrency" => "account[settings][max_concurrency]",
            "max_tpm" => "account[settings][max_tpm]",
            "daily_limit" => "account[settings][daily_limit]",
            "region" => "account[settings][region]",
            _ => "account[settings][is_enabled]",
        },
    };
    view! {
        <InputField name=name("max_rps") prefix=prefix.clone() min="0.001" step="any"
            label=t.accounts.max_rps help=t.accounts.max_rps_help
            value=text(Some(settings.max_rps)) default=preset.max_rps.to_string()/>
        <InputField name=name("max_concurrency") prefix=prefix.clone() min="1" step="1" optional=true
            label=t.accounts.max_concurrency help=t.accounts.max_concurrency_help
            value=text(settings.max_concurrency) default=t.common.unlimited/>
        <InputField name=name("max_tpm") prefix=prefix.clone() min="1" step="1" optional=true
            label=t.accounts.max_tpm help=t.accounts.max_tpm_help
            value=text(settings.max_tpm) default=t.common.unlimited/>
        <InputField name=name("daily_limit") prefix=prefix.clone() min="1" step="1" optional=true
            label=t.accounts.daily_limit help=t.accounts.daily_limit_help
            value=text(settings.daily_limit) default=t.common.unlimited/>
        <InputField name=name("region") prefix=prefix.clone() kind="text" optional=true
            label=t.accounts.region help=t.accounts.region_help
            value=text(settings.region) default=t.common.none/>
        <CheckField name=name("is_enabled") prefix=prefix
            label=t.accounts.in_use help=t.accounts.in_use_help
            checked=settings.is_enabled default=preset.is_enabled/>
    }
    .into_any()
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
            let unbind = may_write.then(|| view! { <Unbind label=label.clone() model=binding.model.clone()/> });
            view! {
                <tr data-binding=binding.model>
                    <th scope="row">{binding.model.clone()}</th>
                    <td class="number">{binding.priority}</td>
                    <td class="row-actions">{unbind}</td>
                </tr>
            }
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
            <InputField name="key" prefix=format!("replace-{label}") kind="password"
                label=t.accounts.new_key help=t.accounts.replace_key_help value=typed/>
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
    view! {
        <Show when=move || cools.get()>
            {
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
            }
        </Show>
    }
}

fn text(value: Option<impl ToString>) -> RwSignal<String> {
    RwSignal::new(value.map(|value| value.to_string()).unwrap_or_default())
}
