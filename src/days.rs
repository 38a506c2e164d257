//! What each account has sent today, told to the engine from the record: after a start, and for what
//! other nodes have sent.

use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{Clock, Moment, State};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::catalog::Catalog;
use crate::ledger::Ledger;

/// How often the record is read.
const LOOK: Duration = Duration::from_secs(15);

/// Tells the engine the day's counts now, and again and again for as long as the server lives.
pub(crate) async fn watch(
    catalog: Arc<Catalog>,
    ledger: Ledger,
    state: Arc<dyn State>,
    clock: Arc<dyn Clock>,
    time_zone: TimeZone,
) {
    loop {
        if let Err(error) = tell(&catalog, &ledger, &*state, clock.now(), &time_zone).await {
            tracing::warn!(%error, "the day's requests could not be read; each node counts on by itself");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Tells the engine what was sent in the day of `now`.
pub(crate) async fn tell(
    catalog: &Catalog,
    ledger: &Ledger,
    state: &dyn State,
    now: Moment,
    time_zone: &TimeZone,
) -> Result<(), crate::ledger::StoreError> {
    let Some((day, ends)) = day_of(now, time_zone) else { return Ok(()) };
    let sent = ledger.requests_on(&day).await?;
    let snapshot = catalog.snapshot();
    let accounts =
        snapshot.alone.values().flat_map(|pool| pool.members()).flat_map(|member| &member.accounts);
    for account in accounts.map(|binding| &binding.account) {
        let used = sent.get(&*account.id.0).copied().unwrap_or_default();
        let used = u64::try_from(used).unwrap_or_default();
        state.account(&account.id, account.key_revision).start_day(used, ends);
    }
    Ok(())
}

/// The day as the record names it, and the moment at which it ends.
fn day_of(now: Moment, time_zone: &TimeZone) -> Option<(String, Moment)> {
    let today = Timestamp::from_millisecond(now.as_millis() as i64).ok()?.to_zoned(time_zone.clone()).date();
    let ends = today.checked_add(1.day()).ok()?.to_zoned(time_zone.clone()).ok()?.timestamp();
    Some((today.to_string(), Moment::from_millis(u64::try_from(ends.as_millisecond()).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ends_at_midnight_of_the_time_zone_also_when_it_is_no_24_hours_long() {
        let moment = |text: &str| {
            let at: Timestamp = text.parse().expect("a time");
            Moment::from_millis(at.as_millisecond() as u64)
        };
        let day = |text: &str, zone: &str| {
            day_of(moment(text), &TimeZone::get(zone).expect("a zone")).expect("a day")
        };
        assert_eq!(day("2026-11-30T23:30:00Z", "UTC"), ("2026-11-30".into(), moment("2026-12-01T00:00:00Z")));
        assert_eq!(
            day("2026-11-30T23:30:00Z", "Asia/Shanghai"),
            ("2026-12-01".into(), moment("2026-12-01T16:00:00Z"))
        );
        assert_eq!(
            day("2026-03-29T00:30:00Z", "Europe/Berlin"),
            ("2026-03-29".into(), moment("2026-03-29T22:00:00Z"))
        );
    }
}
