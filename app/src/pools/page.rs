//! `/admin/model-pools`: a card a pool; one of them open.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use super::api::{
    EditPool, ForceOpen, LiveView, LoadPools, PoolCard, PoolsView, ResetBreaker, ResetBreakers, RunMockPick,
    SetMember, WatchPools,
};
use super::card::Card;
use crate::ui::ask::{ask, ask_json};
use crate::ui::filter::FilterForm;
use crate::ui::form::Act;
use crate::ui::load::{PageData, load, show};
use crate::ui::notice::{ConnectionBanner, Empty, FormProblem};
use crate::ui::poll::Poll;
use crate::ui::text::use_text;
use crate::ui::when::when;

/// What the forms of the page do, and the poll that shows what came of it. Found in context.
#[derive(Clone, Copy)]
pub(super) struct PoolActs {
    pub(super) edit: Act,
    pub(super) set_member: Act,
    pub(super) reset: Act,
    pub(super) reset_all: Act,
    pub(super) force_open: Act,
    pub(super) mock_pick: Act,
    pub(super) poll: Poll<LiveView>,
}

impl PoolActs {
    fn new(page: PageData, poll: Poll<LiveView>) -> Self {
        let t = use_text();
        let acts = Self {
            edit: Act::of::<EditPool>(),
            set_member: Act::of::<SetMember>(),
            reset: Act::of::<ResetBreaker>(),
            reset_all: Act::of::<ResetBreakers>(),
            force_open: Act::of::<ForceOpen>(),
            mock_pick: Act::of::<RunMockPick>(),
            poll,
        };
        let reset = |n: &str| (t.pools.reset_all_done)(n.parse().unwrap_or_default());
        acts.edit.on_success(Box::new(t.pools.settings_saved), Box::new(move || page.refetch()));
        acts.set_member.on_success(Box::new(t.pools.member_saved), Box::new(move || page.refetch()));
        acts.reset.on_success(Box::new(t.pools.reset_done), Box::new(move || poll.now()));
        acts.reset_all.on_success(Box::new(reset), Box::new(move || poll.now()));
        acts.force_open.on_success(Box::new(t.pools.force_open_done), Box::new(move || poll.now()));
        acts
    }
}

/// The page.
#[component]
pub(crate) fn PoolsPage() -> impl IntoView {
    let t = use_text();
    let query = use_query_map();
    let open = Memo::new(move |_| query.with(|query| query.get("pool")));
    let page = load(
        move || open.get().unwrap_or_default(),
        |key| ask_json(LoadPools { open: Some(key).filter(|key| !key.is_empty()) }),
    );
    let poll = Poll::new(move || ask(WatchPools { open: open.get_untracked() }));
    let acts = PoolActs::new(page, poll);
    provide_context(acts);
    let cards = show(page, move |view: PoolsView| {
        poll.seed(view.live.clone());
        view! { <Cards view open/> }.into_any()
    });
    view! {
        <Title text=t.pools.title/>
        <ConnectionBanner trouble=poll.trouble age=poll.age/>
        <header class="page-head">
            <h1>{t.pools.title}</h1>
            <Search open/>
        </header>
        <FormProblem act=acts.set_member/>
        <FormProblem act=acts.reset/>
        <FormProblem act=acts.reset_all/>
        <FormProblem act=acts.force_open/>
        {cards}
    }
    .into_any()
}

/// Search by name or key; keeps the open pool open.
#[component]
fn Search(open: Memo<Option<String>>) -> impl IntoView {
    let t = use_text();
    let query = use_query_map();
    let q = Memo::new(move |_| query.with(|query| query.get("q")).unwrap_or_default());
    view! {
        <FilterForm path="/admin/model-pools">
            {move || open.get().map(|key| view! { <input type="hidden" name="pool" value=key/> }.into_any())}
            <label class="visually-hidden" for="q">
                {t.common.search}
            </label>
            <input
                id="q"
                name="q"
                type="search"
                placeholder=t.pools.search_hint
                value=q.get_untracked()
                prop:value=move || q.get()
            />
            <button class="button">{t.common.search}</button>
        </FilterForm>
    }
}

#[component]
fn Cards(view: PoolsView, open: Memo<Option<String>>) -> impl IntoView {
    let t = use_text();
    let query = use_query_map();
    let missing = open
        .get_untracked()
        .filter(|_| view.open.is_none())
        .map(|key| view! { <p class="notice">{(t.pools.unknown_pool)(&key)}</p> }.into_any());
    if view.cards.is_empty() {
        return view! { <Empty title=t.pools.empty next=t.pools.empty_next/> }.into_any();
    }
    let cards = StoredValue::new(view.cards);
    let detail = StoredValue::new(view.open);
    let shown = Memo::new(move |_| {
        let q = query.with(|query| query.get("q")).unwrap_or_default().trim().to_ascii_lowercase();
        cards.with_value(|cards| cards.iter().filter(|card| matches(card, &q)).cloned().collect::<Vec<_>>())
    });
    let some = move || shown.with(|shown| !shown.is_empty());
    let nothing = when(move || !some(), move || view! { <Empty title=t.pools.no_match/> }.into_any());
    let card = move |card: PoolCard| {
        let detail = detail.with_value(|detail| detail.clone().filter(|detail| detail.card.key == card.key));
        view! { <Card card detail/> }.into_any()
    };
    view! {
        {missing}
        {nothing}
        <div class="cards">{move || shown.get().into_iter().map(card).collect_view()}</div>
    }
    .into_any()
}

fn matches(card: &PoolCard, q: &str) -> bool {
    q.is_empty() || card.key.to_ascii_lowercase().contains(q) || card.name.to_ascii_lowercase().contains(q)
}
