//! The members of the open pool.

use leptos::prelude::*;

use super::api::{LiveModel, MemberAccount, MemberRow, PoolDetail};
use super::page::PoolActs;
use crate::frame::Frame;
use crate::ui::badge::{BreakerBadge, CooldownBadge, ErrorClass, Time};
use crate::ui::confirm::{Confirm, ConfirmButtons};
use crate::ui::form::PostForm;
use crate::ui::format;
use crate::ui::icon::{Glyph, Icon};
use crate::ui::meter::Meter;
use crate::ui::notice::Empty;
use crate::ui::text::use_text;

/// Weight, priority and rotation of one member as typed, before saving.
#[derive(Clone, Copy)]
struct Typed {
    weight: RwSignal<String>,
    priority: RwSignal<String>,
    is_active: bool,
}

impl Typed {
    fn of(member: &MemberRow) -> Self {
        Self {
            weight: RwSignal::new(member.weight.to_string()),
            priority: RwSignal::new(member.priority.to_string()),
            is_active: member.is_active,
        }
    }

    fn weight(&self) -> f64 {
        self.weight.with(|text| text.trim().parse::<u32>()).map_or(0.0, f64::from)
    }

    fn tier(&self) -> Option<i64> {
        self.priority.with(|text| text.trim().parse().ok())
    }
}

#[component]
pub(super) fn Members(detail: PoolDetail) -> impl IntoView {
    let t = use_text();
    let PoolDetail { card, members, .. } = detail;
    if members.is_empty() {
        return view! { <Empty title=t.pools.no_members next=t.pools.no_members_next/> }.into_any();
    }
    let may_write = expect_context::<Frame>().may_write();
    let names = members.iter().map(|member| member.model.clone()).collect::<Vec<_>>().join(", ");
    let typed: Vec<Typed> = members.iter().map(Typed::of).collect();
    let all = StoredValue::new(typed.clone());
    let rows = members
        .into_iter()
        .zip(typed)
        .map(|(member, typed)| {
            let pool = card.key.clone();
            let threshold = card.circuit_failure_threshold;
            view! { <Member pool member typed all threshold/> }.into_any()
        })
        .collect_view();
    view! {
        <div class="table-frame">
            <table class="members">
                <thead>
                    <tr>
                        <th scope="col">{t.pools.model}</th>
                        <th scope="col">{t.pools.breaker}</th>
                        <th scope="col" class="number">
                            {t.pools.in_flight}
                        </th>
                        <th scope="col" class="number" title=t.pools.five_minutes>
                            {t.pools.errors}
                        </th>
                        <th scope="col">{t.pools.weight}</th>
                        <th scope="col">{t.pools.priority}</th>
                        <th scope="col" title=t.pools.share_help>
                            {t.pools.share}
                        </th>
                        <th scope="col">{t.pools.accounts}</th>
                        {may_write.then(|| view! { <th scope="col">{t.pools.actions}</th> }.into_any())}
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
        {may_write.then(|| view! { <ResetAll pool=card.key.clone() names/> }.into_any())}
    }
    .into_any()
}

#[component]
fn Member(
    pool: String,
    member: MemberRow,
    typed: Typed,
    all: StoredValue<Vec<Typed>>,
    threshold: u32,
) -> impl IntoView {
    let t = use_text();
    let acts = expect_context::<PoolActs>();
    let poll = acts.poll;
    let may_write = expect_context::<Frame>().may_write();
    let name = member.model.clone();
    let live = {
        let name = name.clone();
        Memo::new(move |_| {
            poll.latest.with(|live| live.as_ref()?.models.iter().find(|model| model.model == name).cloned())
        })
    };
    let breaker = Memo::new(move |_| live.with(|live| live.as_ref().map(|live| live.breaker.clone())));
    let in_flight = move || live.with(|live| live.as_ref().map_or(0, |live| live.in_flight));
    let max = member.max_concurrency.map_or_else(|| "∞".to_owned(), |max| max.to_string());
    let errors = move || {
        live.with(|live| {
            live.as_ref().map_or_else(|| "–".into(), |live| format::percent(live.failed, live.calls))
        })
    };
    let calls = move || live.with(|live| live.as_ref().map_or(0, |live| live.calls));
    let effective = move || {
        live.with(|live| live.as_ref().map(|live| live.effective_weight_milli))
            .map(|milli| (t.pools.effective)(&format::milli(milli)))
    };
    let share = Signal::derive(move || share_of(&typed, &all.get_value()));
    let share_text = move || format!("{} %", (share.get() * 100.0).round() as u32);
    let failures = move || {
        let n = breaker.with(|breaker| breaker.as_ref().map_or(0, |breaker| breaker.consecutive_failures));
        (n > 0).then(|| {
            view! {
                <span class="small muted nowrap" title=(t.pools.failures_of)(threshold)>
                    {(t.pools.failures_in_a_row)(n)}
                </span>
            }
            .into_any()
        })
    };
    let out = (!member.is_active)
        .then(|| view! { <span class="badge"><Icon glyph=Glyph::Ban/>{t.pools.out}</span> }.into_any());
    let form_id = format!("member-{name}");
    let row_actions = may_write.then(|| {
        view! { <MemberActions pool member=member.clone() form_id=form_id.clone() typed/> }.into_any()
    });
    view! {
        <tr class:row-out=!member.is_active data-model=name>
            <th scope="row">
                <span class="name">{name.clone()}</span>
                <span class="small muted">{format!("{} · {}", member.provider, member.upstream_model)}</span>
                {out}
            </th>
            <td>
                {move || breaker.get().map(|breaker| view! { <BreakerBadge breaker age=poll.age/> }.into_any())}
                {move || failures()}
                <LastFailure live/>
            </td>
            <td class="number nowrap">{move || in_flight().to_string()}<span class="muted">{format!(" / {max}")}</span></td>
            <td class="number">
                {move || errors()}
                <span class="small muted nowrap">{move || (t.pools.of_calls)(&format::count(calls()))}</span>
            </td>
            <td>
                <NumberCell form=form_id.clone() name="edit[weight]" label=t.pools.weight value=typed.weight min="1" may_write/>
                <span class="small muted nowrap">{move || effective()}</span>
            </td>
            <td>
                <NumberCell form=form_id.clone() name="edit[priority]" label=t.pools.priority value=typed.priority min="0" may_write/>
            </td>
            <td>
                <Meter share/>
                <span class="small">{move || share_text()}</span>
            </td>
            <td>
                <Accounts accounts=member.accounts.clone() live age=poll.age/>
            </td>
            {row_actions}
        </tr>
    }
    .into_any()
}

/// What part of its tier's requests a member gets, with the weights as typed.
fn share_of(this: &Typed, all: &[Typed]) -> f64 {
    if !this.is_active {
        return 0.0;
    }
    let tier = this.tier();
    let sum: f64 =
        all.iter().filter(|other| other.is_active && other.tier() == tier).map(Typed::weight).sum();
    if sum > 0.0 { this.weight() / sum } else { 0.0 }
}

/// A number typed in a table cell; it belongs to the form of its row.
#[component]
fn NumberCell(
    form: String,
    name: &'static str,
    label: &'static str,
    value: RwSignal<String>,
    min: &'static str,
    may_write: bool,
) -> impl IntoView {
    view! {
        <input
            class="cell"
            type="number"
            form=form
            name=name
            min=min
            step="1"
            required
            readonly=!may_write
            aria-label=label
            value=value.get_untracked()
            prop:value=move || value.get()
            on:input:target=move |event| value.set(event.target().value())
        />
    }
}

/// The accounts of a member, each with what sets it aside.
#[component]
fn Accounts(
    accounts: Vec<MemberAccount>,
    live: Memo<Option<LiveModel>>,
    age: RwSignal<u32>,
) -> impl IntoView {
    let t = use_text();
    let cooldowns = move |account: Option<String>| {
        live.with(|live| {
            let cooldowns = live.as_ref().map(|live| live.cooldowns.clone()).unwrap_or_default();
            cooldowns
                .into_iter()
                .filter(|cooldown| cooldown.account == account)
                .map(|cooldown| view! { <CooldownBadge cooldown age/> }.into_any())
                .collect_view()
        })
    };
    let rows = accounts
        .into_iter()
        .map(|account| {
            let label = account.label.clone();
            let disabled = (!account.is_enabled)
                .then(|| view! { <span class="badge"><Icon glyph=Glyph::Ban/>{t.accounts.disabled}</span> }.into_any());
            view! {
                <li>
                    <a href=format!("/admin/api-accounts?account={}", account.label)>{account.label.clone()}</a>
                    {disabled}
                    {move || cooldowns(Some(label.clone()))}
                </li>
            }.into_any()
        })
        .collect_view();
    view! {
        <ul class="plain">
            {rows}
            <li>{move || cooldowns(None)}</li>
        </ul>
    }
}

/// The last failure: class, status and when; its message on hover.
#[component]
fn LastFailure(live: Memo<Option<LiveModel>>) -> impl IntoView {
    let last = Memo::new(move |_| live.with(|live| live.as_ref().and_then(|live| live.last_error.clone())));
    let t = use_text();
    move || {
        last.get().map(|error| {
            let title = format!("{}: {}", t.pools.last_error, error.message);
            view! {
                <span class="small" title=title>
                    <ErrorClass class=error.class/>
                    {error.http_status.map(|status| format!(" {status}"))}
                </span>
                <span class="small muted nowrap">
                    <Time at=error.at/>
                </span>
            }
            .into_any()
        })
    }
}

/// Save what was typed; reset and force the breaker; in and out of rotation.
#[component]
fn MemberActions(pool: String, member: MemberRow, form_id: String, typed: Typed) -> impl IntoView {
    view! {
        <td class="row-actions">
            <SaveMember member=member.clone() form_id typed/>
            <Reset model=member.model.clone()/>
            <ForceOpen model=member.model.clone()/>
            <Rotation pool member/>
        </td>
    }
    .into_any()
}

/// The form that the row's cells belong to.
#[component]
fn SaveMember(member: MemberRow, form_id: String, typed: Typed) -> impl IntoView {
    let t = use_text();
    let act = expect_context::<PoolActs>().set_member;
    let (weight, priority) = (member.weight.to_string(), member.priority.to_string());
    let changed = move || typed.weight.with(|w| *w != weight) || typed.priority.with(|p| *p != priority);
    let name = member.model.clone();
    let saving = Memo::new(move |_| act.is_pending_for(&name));
    let label = move || {
        if saving.get() { t.common.saving } else { t.common.save }
    };
    view! {
        <PostForm act id=form_id of=member.model.clone()>
            <input type="hidden" name="model" value=member.model/>
            <input type="hidden" name="edit[is_active]" value=member.is_active.to_string()/>
            <button
                class="button button-small"
                class:button-primary=changed
                disabled=move || saving.get()
            >
                {move || label()}
            </button>
        </PostForm>
    }
}

#[component]
fn Reset(model: String) -> impl IntoView {
    let t = use_text();
    let act = expect_context::<PoolActs>().reset;
    let id = format!("reset-{model}");
    let question = (t.pools.reset_ask)(&model);
    view! {
        <Confirm id=id.clone() label=t.pools.reset class="button button-small" question>
            <PostForm act>
                <input type="hidden" name="model" value=model/>
                <ConfirmButtons of=id go=t.pools.reset/>
            </PostForm>
        </Confirm>
    }
}

#[component]
fn ForceOpen(model: String) -> impl IntoView {
    let t = use_text();
    let act = expect_context::<PoolActs>().force_open;
    let id = format!("force-open-{model}");
    let seconds_id = format!("{id}-seconds");
    let question = (t.pools.force_open_ask)(&model);
    view! {
        <Confirm id=id.clone() label=t.pools.force_open class="button button-small" question>
            <PostForm act>
                <input type="hidden" name="model" value=model/>
                <label for=seconds_id.clone()>{t.pools.force_open_seconds}</label>
                <input id=seconds_id name="seconds" type="number" min="1" step="1" value="300" required/>
                <ConfirmButtons of=id go=t.pools.force_open/>
            </PostForm>
        </Confirm>
    }
}

/// Out of rotation, or back in, with weight and priority as saved.
#[component]
fn Rotation(pool: String, member: MemberRow) -> impl IntoView {
    let t = use_text();
    let act = expect_context::<PoolActs>().set_member;
    let MemberRow { model, weight, priority, is_active, .. } = member;
    let id = format!("rotation-{model}");
    let (label, question) = if is_active {
        (t.pools.take_out, (t.pools.take_out_ask)(&model, &pool))
    } else {
        (t.pools.put_back, (t.pools.put_back_ask)(&model, &pool))
    };
    view! {
        <Confirm id=id.clone() label class="button button-small" question>
            <PostForm act>
                <input type="hidden" name="model" value=model/>
                <input type="hidden" name="edit[weight]" value=weight.to_string()/>
                <input type="hidden" name="edit[priority]" value=priority.to_string()/>
                <input type="hidden" name="edit[is_active]" value=(!is_active).to_string()/>
                <ConfirmButtons of=id go=label/>
            </PostForm>
        </Confirm>
    }
}

#[component]
fn ResetAll(pool: String, names: String) -> impl IntoView {
    let t = use_text();
    let acts = expect_context::<PoolActs>();
    let question = (t.pools.reset_all_ask)(&pool, &names);
    view! {
        <div class="panel-foot">
            <Confirm id="reset-all".to_owned() label=t.pools.reset_all question>
                <PostForm act=acts.reset_all>
                    <input type="hidden" name="key" value=pool/>
                    <ConfirmButtons of="reset-all".to_owned() go=t.pools.reset_all/>
                </PostForm>
            </Confirm>
        </div>
    }
}
