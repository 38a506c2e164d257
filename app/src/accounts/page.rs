//! `/admin/api-accounts`: every account; one of them open.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::components::A;
use leptos_router::hooks::use_query_map;

use super::api::{
    AccountChoices, AccountLive, AccountRow, AccountsView, AddAccount, BindAccount, ClearCooldown,
    EditAccount, LiveAccount, LoadAccounts, ReplaceKey, UnbindAccount, WatchAccounts,
};
use super::panel::{AddForm, Panel};
use crate::frame::Frame;
use crate::ui::ask::{ask, ask_json};
use crate::ui::badge::{CooldownBadge, ErrorClass, Time};
use crate::ui::filter::FilterForm;
use crate::ui::form::Act;
use crate::ui::format;
use crate::ui::icon::{Glyph, Icon};
use crate::ui::load::{PageData, load, show};
use crate::ui::meter::Meter;
use crate::ui::notice::{ConnectionBanner, Empty, FormProblem};
use crate::ui::poll::Poll;
use crate::ui::text::use_text;
use crate::ui::when::when;

pub(super) const PATH: &str = "/admin/api-accounts";

/// How many bound models a row names before it counts the rest.
const MODELS_NAMED: usize = 3;

/// What the forms of the page do, and the poll that shows what came of it. Found in context.
#[derive(Clone, Copy)]
pub(super) struct AccountActs {
    pub(super) add: Act,
    pub(super) edit: Act,
    pub(super) replace_key: Act,
    pub(super) bind: Act,
    pub(super) unbind: Act,
    pub(super) clear: Act,
    pub(super) poll: Poll<AccountLive>,
}

impl AccountActs {
    fn new(page: PageData, poll: Poll<AccountLive>) -> Self {
        let t = use_text();
        let acts = Self {
            add: Act::of::<AddAccount>(),
            edit: Act::of::<EditAccount>(),
            replace_key: Act::of::<ReplaceKey>(),
            bind: Act::of::<BindAccount>(),
            unbind: Act::of::<UnbindAccount>(),
            clear: Act::of::<ClearCooldown>(),
            poll,
        };
        acts.add.on_success(Box::new(t.accounts.added), Box::new(move || page.refetch()));
        acts.edit.on_success(Box::new(t.accounts.saved), Box::new(move || page.refetch()));
        acts.replace_key.on_success(Box::new(t.accounts.key_replaced), Box::new(move || page.refetch()));
        acts.bind.on_success(Box::new(t.accounts.bound), Box::new(move || page.refetch()));
        acts.unbind.on_success(Box::new(t.accounts.unbind_done), Box::new(move || page.refetch()));
        acts.clear.on_success(Box::new(t.accounts.cleared), Box::new(move || poll.now()));
        acts
    }
}

/// The page.
#[component]
pub(crate) fn AccountsPage() -> impl IntoView {
    let t = use_text();
    let query = use_query_map();
    let may_write = expect_context::<Frame>().may_write();
    let page = load(String::new, |_| ask_json(LoadAccounts {}));
    let poll = Poll::new(|| ask(WatchAccounts {}));
    let acts = AccountActs::new(page, poll);
    provide_context(acts);
    let accounts = show(page, move |view: AccountsView| {
        poll.seed(view.live.clone());
        view! { <Accounts view/> }.into_any()
    });
    let q = Memo::new(move |_| query.with(|query| query.get("q")).unwrap_or_default());
    view! {
        <Title text=t.accounts.title/>
        <ConnectionBanner trouble=poll.trouble age=poll.age/>
        <header class="page-head">
            <h1>{t.accounts.title}</h1>
            <FilterForm path=PATH>
                <label class="visually-hidden" for="q">
                    {t.common.search}
                </label>
                <input id="q" name="q" type="search" placeholder=t.accounts.search_hint value=q.get_untracked() prop:value=move || q.get()/>
                <button class="button">{t.common.search}</button>
            </FilterForm>
            {may_write.then(|| view! {
                <A href=format!("{PATH}?new=1") attr:class="button button-primary">
                    <Icon glyph=Glyph::Plus/>
                    {t.accounts.add}
                </A>
            }.into_any())}
        </header>
        <FormProblem act=acts.unbind/>
        <FormProblem act=acts.clear/>
        {accounts}
    }
    .into_any()
}

#[component]
fn Accounts(view: AccountsView) -> impl IntoView {
    let t = use_text();
    let query = use_query_map();
    let may_write = expect_context::<Frame>().may_write();
    let AccountsView { accounts, choices, .. } = view;
    let none_yet = accounts.is_empty();
    let accounts = StoredValue::new(accounts);
    let choices = StoredValue::new(choices);
    let adding = Memo::new(move |_| may_write && query.with(|query| query.get_str("new").is_some()));
    let shown = Memo::new(move |_| {
        let q = query.with(|query| query.get("q")).unwrap_or_default().trim().to_ascii_lowercase();
        accounts
            .with_value(|all| all.iter().filter(|account| matches(account, &q)).cloned().collect::<Vec<_>>())
    });
    let some = move || shown.with(|shown| !shown.is_empty());
    let nothing = when(
        move || !some(),
        move || {
            if none_yet {
                view! { <Empty title=t.accounts.empty next=t.accounts.empty_next/> }.into_any()
            } else {
                view! { <Empty title=t.accounts.no_match/> }.into_any()
            }
        },
    );
    let form =
        when(move || adding.get(), move || view! { <AddForm choices=choices.get_value()/> }.into_any());
    let table = when(some, move || view! { <Table shown choices/> }.into_any());
    view! {
        {form}
        {nothing}
        {table}
    }
    .into_any()
}

#[component]
fn Table(shown: Memo<Vec<AccountRow>>, choices: StoredValue<AccountChoices>) -> impl IntoView {
    let t = use_text();
    let row = move |account| view! { <Row account choices/> }.into_any();
    view! {
        <div class="table-frame">
            <table class="accounts">
                <thead>
                    <tr>
                        <th scope="col">{t.accounts.label.label}</th>
                        <th scope="col">{t.accounts.key.label}</th>
                        <th scope="col">{t.accounts.state}</th>
                        <th scope="col">{t.accounts.rps}</th>
                        <th scope="col">{t.accounts.in_flight}</th>
                        <th scope="col">{t.accounts.today}</th>
                        <th scope="col">{t.accounts.models}</th>
                        <th scope="col">{t.accounts.last_used}</th>
                    </tr>
                </thead>
                <tbody>{move || shown.get().into_iter().map(row).collect_view()}</tbody>
            </table>
        </div>
    }
    .into_any()
}

#[component]
fn Row(account: AccountRow, choices: StoredValue<AccountChoices>) -> impl IntoView {
    let t = use_text();
    let query = use_query_map();
    let poll = expect_context::<AccountActs>().poll;
    let label = account.label.clone();
    let live = {
        let label = label.clone();
        Memo::new(move |_| {
            poll.latest.with(|live| live.as_ref()?.accounts.iter().find(|a| a.label == label).cloned())
        })
    };
    let is_open = {
        let label = label.clone();
        Memo::new(move |_| query.with(|query| query.get_str("account") == Some(label.as_str())))
    };
    let href = {
        let label = label.clone();
        move || row_href(&label, is_open.get(), query.with(|query| query.get("q")))
    };
    let key = account.key_last4.as_ref().map_or_else(
        || view! { <span class="muted">{t.accounts.no_key}</span> }.into_any(),
        |last4| view! { <code>{format!("····{last4}")}</code> }.into_any(),
    );
    let problem = account.problem.clone().map(|problem| {
        view! {
            <span class="badge badge-bad" title=problem.clone()>
                <Icon glyph=Glyph::Warning/>
                {problem.clone()}
            </span>
        }
        .into_any()
    });
    let settings = account.settings.clone();
    let max_rps = settings.max_rps;
    let last_used = move || {
        let at = live.with(|live| live.as_ref().and_then(|live| live.last_used.clone()));
        match at {
            Some(at) => view! { <span class="small nowrap"><Time at/></span> }.into_any(),
            None => view! { <span class="muted">{t.accounts.never}</span> }.into_any(),
        }
    };
    let last_error = move || {
        live.with(|live| live.as_ref().and_then(|live| live.last_error.clone())).map(|error| {
            view! {
                <span class="small nowrap" title=error.message>
                    <ErrorClass class=error.class/>
                    {error.http_status.map(|status| format!(" {status}"))}
                </span>
                <span class="small muted nowrap">
                    <Time at=error.at/>
                </span>
            }
            .into_any()
        })
    };
    let account = StoredValue::new(account);
    let name = label.clone();
    let panel = when(
        move || is_open.get(),
        move || {
            let (account, choices) = (account.get_value(), choices.get_value());
            view! {
                <tr class="row-panel">
                    <td colspan="8">
                        <Panel account choices live/>
                    </td>
                </tr>
            }
            .into_any()
        },
    );
    view! {
        <tr class:row-open=move || is_open.get() data-account=label>
            <th scope="row" class="nowrap">
                <A href=href attr:class="card-link" attr:aria-expanded=move || is_open.get().to_string() scroll=false>
                    <Icon glyph=Glyph::Chevron/>
                    {name}
                </A>
                <span class="small muted under-link">{account.with_value(|account| account.provider.clone())}</span>
            </th>
            <td>{key}</td>
            <td>
                {problem}
                <State enabled=settings.is_enabled live age=poll.age/>
            </td>
            <td>
                <Meter share=Signal::derive(move || used(live, |l| l.rps_milli) / 1_000.0 / max_rps.max(0.001))/>
                <span class="small nowrap">
                    {move || format::milli(live.with(|live| live.as_ref().map_or(0, |l| l.rps_milli)))}
                    <span class="muted">{format!(" / {max_rps}")}</span>
                </span>
            </td>
            <td>
                <Used live read=|l| l.in_flight max=settings.max_concurrency.map(u64::from)/>
            </td>
            <td>
                <Used live read=|l| l.used_today max=settings.daily_limit/>
            </td>
            <td class="models">{account.with_value(|account| models(account, t))}</td>
            <td>{move || last_used()} {move || last_error()}</td>
        </tr>
        {panel}
    }
    .into_any()
}

/// Enabled or not, and what sets it aside.
#[component]
fn State(enabled: bool, live: Memo<Option<LiveAccount>>, age: RwSignal<u32>) -> impl IntoView {
    let t = use_text();
    let cooldowns = Memo::new(move |_| {
        live.with(|live| live.as_ref().map(|live| live.cooldowns.clone()).unwrap_or_default())
    });
    move || {
        if !enabled {
            return view! { <span class="badge"><Icon glyph=Glyph::Ban/>{t.accounts.disabled}</span> }
                .into_any();
        }
        let cooldowns = cooldowns.get();
        if cooldowns.is_empty() {
            return view! { <span class="badge badge-good"><Icon glyph=Glyph::Check/>{t.accounts.enabled}</span> }
                .into_any();
        }
        cooldowns
            .into_iter()
            .map(|cooldown| {
                let model = cooldown.model.clone();
                view! {
                    <span class="stack">
                        <CooldownBadge cooldown age/>
                        {model.map(|model| view! {
                            <span class="small muted">{(t.common.cooling_for_model)(&model)}</span>
                        }.into_any())}
                    </span>
                }
                .into_any()
            })
            .collect_view()
            .into_any()
    }
}

/// A figure and its limit, with a bar where there is one.
#[component]
fn Used(live: Memo<Option<LiveAccount>>, read: fn(&LiveAccount) -> u64, max: Option<u64>) -> impl IntoView {
    let now = move || live.with(|live| live.as_ref().map_or(0, read));
    let bar = max.map(|max| {
        let share = Signal::derive(move || used(live, read) / (max.max(1) as f64));
        view! { <Meter share/> }.into_any()
    });
    let limit = max.map_or_else(|| "∞".to_owned(), format::count);
    view! {
        {bar}
        <span class="small nowrap">{move || format::count(now())} <span class="muted">{format!(" / {limit}")}</span></span>
    }
}

fn used(live: Memo<Option<LiveAccount>>, read: fn(&LiveAccount) -> u64) -> f64 {
    live.with(|live| live.as_ref().map_or(0, read)) as f64
}

fn models(account: &AccountRow, t: &'static crate::ui::text::Text) -> AnyView {
    if account.bindings.is_empty() {
        return view! { <span class="muted">{t.accounts.unbound}</span> }.into_any();
    }
    let all = account.bindings.iter().map(|binding| binding.model.as_str()).collect::<Vec<_>>();
    let named = all.iter().take(MODELS_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = all.len().checked_sub(MODELS_NAMED).filter(|more| *more > 0);
    view! {
        <span title=all.join(", ")>
            {named} {more.map(|more| view! { <span class="muted">" + " {(t.accounts.more)(more)}</span> }.into_any())}
        </span>
    }
    .into_any()
}

fn matches(account: &AccountRow, q: &str) -> bool {
    let holds = |text: &str| text.to_ascii_lowercase().contains(q);
    q.is_empty()
        || holds(&account.label)
        || holds(&account.provider)
        || account.bindings.iter().any(|binding| holds(&binding.model))
}

fn row_href(label: &str, is_open: bool, q: Option<String>) -> String {
    let account = (!is_open).then(|| format!("account={label}"));
    let q = q.filter(|q| !q.is_empty()).map(|q| format!("q={q}"));
    let query = account.into_iter().chain(q).collect::<Vec<_>>().join("&");
    if query.is_empty() { PATH.to_owned() } else { format!("{PATH}?{query}") }
}
