//! Picks as things stand now: who would be called, and why the others would not.

use leptos::prelude::*;

use super::api::MockPick;
use super::page::PoolActs;
use crate::ui::ask::read;
use crate::ui::form::{PostForm, SubmitButton};
use crate::ui::format;
use crate::ui::meter::Meter;
use crate::ui::notice::FormProblem;
use crate::ui::text::use_text;

#[component]
pub(super) fn DryRun(pool: String) -> impl IntoView {
    let t = use_text();
    let act = expect_context::<PoolActs>().mock_pick;
    let result = move || read::<MockPick>(&act.answer()?).ok();
    view! {
        <div class="panel-body">
            <p class="muted">{t.pools.dry_run_help}</p>
            <PostForm act class="inline-form">
                <input type="hidden" name="key" value=pool/>
                <label for="dry-run-n">{t.pools.dry_run_n}</label>
                <input id="dry-run-n" name="n" type="number" min="1" max="10000" value="1000" required/>
                <SubmitButton act label=t.pools.dry_run_go waiting=t.common.working/>
            </PostForm>
            <FormProblem act/>
            {move || result().map(|result| view! { <Picks result/> }.into_any())}
        </div>
    }
    .into_any()
}

#[component]
fn Picks(result: MockPick) -> impl IntoView {
    let t = use_text();
    let n = result.n;
    let nothing = result
        .picked
        .is_empty()
        .then(|| view! { <p class="notice">{t.pools.dry_run_nothing}</p> }.into_any());
    let picked = result
        .picked
        .into_iter()
        .map(|count| {
            let share = f64::from(count.picks) / f64::from(n.max(1));
            view! {
                <tr>
                    <th scope="row">{count.model}</th>
                    <td class="wide">
                        <Meter share=Signal::stored(share)/>
                    </td>
                    <td class="number">{format::count(u64::from(count.picks))}</td>
                    <td class="number">{format::percent(u64::from(count.picks), u64::from(n))}</td>
                </tr>
            }
            .into_any()
        })
        .collect_view();
    let excluded = (!result.excluded.is_empty()).then(|| {
        let rows = result
            .excluded
            .into_iter()
            .map(|refusal| {
                let reason = (t.pools.exclusion)(&refusal.reason).map_or(refusal.reason, str::to_owned);
                view! {
                    <li>
                        <strong>{refusal.model}</strong>
                        " – "
                        {reason}
                    </li>
                }
                .into_any()
            })
            .collect_view();
        view! {
            <h3>{t.pools.dry_run_excluded}</h3>
            <ul>{rows}</ul>
        }
        .into_any()
    });
    view! {
        {nothing}
        <table class="picks">
            <tbody>{picked}</tbody>
        </table>
        {excluded}
    }
}
