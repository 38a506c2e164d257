//! `/admin/model-pools`: a card a pool; one of them open.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;

use super::api::{
    EditPool, ForceOpen, LiveView, RunMockPick, PoolCard, PoolsView, ResetBreaker, ResetBreakers, SetMember,
    load_pools, watch_pools,
};
use super::card::Card;
use crate::ui::action::{on_success, problem_of};
use crate::ui::filter::FilterForm;
use crate::ui::notice::{ConnectionBanner, Empty, FormProblem, Problem};
use crate::ui::poll::Poll;
use crate::ui::text::use_text;

/// What the forms of the page do, and the poll that shows what came of it. Found in context.
#[derive(Clone, Copy)]
pub(super) struct PoolActions {
    pub(super) edit: ServerAction<EditPool>,
    pub(super) set_member: ServerAction<SetMember>,
    pub(super) reset: ServerAction<ResetBreaker>,
    pub(super) reset_all: ServerAction<ResetBreakers>,
    pub(super) force_open: ServerAction<ForceOpen>,
    pub(super) mock_pick: ServerAction<RunMockPick>,
    pub(super) poll: Poll<LiveView>,
}

impl PoolActions {
    fn new(page: Resource<Result<PoolsView, crate::port::PortError>>, poll: Poll<LiveView>) -> Self {
        let t = use_text();
        let actions = Self {
            edit: ServerAction::new(),
            set_member: ServerAction::new(),
            reset: ServerAction::new(),
            reset_all: ServerAction::new(),
            force_open: ServerAction::new(),
            mock_pick: ServerAction::new(),
            poll,
        };
        on_success(actions.edit, |key| (t.pools.settings_saved)(key), move || page.refetch());
        on_success(actions.set_member, |model| (t.pools.member_saved)(model), move || page.refetch());
        on_success(actions.reset, |model| (t.pools.reset_done)(model), move || poll.now());
        on_success(actions.reset_all, |n| (t.pools.reset_all_done)(*n), move || poll.now());
        on_success(actions.force_open, |model| (t.pools.force_open_done)(model), move || poll.now());
        actions
    }
}

/// The page.
#[component]
pub(crate) fn PoolsPage() -> impl IntoView {
    let t = use_text();
    let query = use_query_map();
    let open = Memo::new(move |_| query.with(|query| query.get("pool")));
    let page = Resource::new(move || open.get(), load_pools);
    let poll = Poll::new(move || watch_pools(open.get_untracked()));
    let actions = PoolActions::new(page, poll);
    provide_context(actions);
    view! {
        <Title text=t.pools.title/>
        <ConnectionBanner trouble=poll.trouble age=poll.age/>
        <header class="page-head">
            <h1>{t.pools.title}</h1>
            <Search open/>
        </header>
        <FormProblem error=problem_of(actions.set_member)/>
        <FormProblem error=problem_of(actions.reset)/>
        <FormProblem error=problem_of(actions.reset_all)/>
        <FormProblem error=problem_of(actions.force_open)/>
        <Transition fallback=move || view! { <p class="muted">{t.common.loading}</p> }>
            {move || Suspend::new(async move {
                match page.await {
                    Ok(view) => {
                        poll.seed(view.live.clone());
                        view! { <Cards view open/> }.into_any()
                    }
                    Err(error) => view! { <Problem error/> }.into_any(),
                }
            })}
        </Transition>
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
            {move || open.get().map(|key| view! { <input type="hidden" name="pool" value=key/> })}
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
        .map(|key| view! { <p class="notice">{(t.pools.unknown_pool)(&key)}</p> });
    if view.cards.is_empty() {
        return view! { <Empty title=t.pools.empty next=t.pools.empty_next/> }.into_any();
    }
    let cards = StoredValue::new(view.cards);
    let detail = StoredValue::new(view.open);
    let shown = Memo::new(move |_| {
        let q = query.with(|query| query.get("q")).unwrap_or_default().trim().to_lowercase();
        cards.with_value(|cards| cards.iter().filter(|card| matches(card, &q)).cloned().collect::<Vec<_>>())
    });
    view! {
        {missing}
        <Show
            when=move || shown.with(|shown| !shown.is_empty())
            fallback=move || view! { <Empty title=t.pools.no_match/> }
        >
            <div class="cards">
                <For each=move || shown.get() key=|card| card.key.clone() let(card)>
                    {
                        let detail = detail.with_value(|detail| {
                            detail.as_ref().filter(|detail| detail.card.key == card.key).cloned()
                        });
                        view! { <Card card detail/> }
                    }
                </For>
            </div>
        </Show>
    }
    .into_any()
}

fn matches(card: &PoolCard, q: &str) -> bool {
    q.is_empty() || card.key.to_lowercase().contains(q) || card.name.to_lowercase().contains(q)
}
