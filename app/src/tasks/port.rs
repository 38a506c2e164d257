//! The port behind `/admin/tasks`.

use super::api::{TaskChoices, TaskDetail, TaskFilter, TaskPage};
use crate::port::PortFuture;

/// Tasks and their attempt chains; reads only.
pub trait TasksPort: Send + Sync + 'static {
    /// Tasks, newest first, from behind `cursor` (the `next_cursor` of the page before). At most
    /// `limit`. A cursor or a time that can't be read is `Invalid`.
    fn list<'a>(
        &'a self,
        filter: &'a TaskFilter,
        cursor: Option<&'a str>,
        limit: u32,
    ) -> PortFuture<'a, TaskPage>;

    /// One task with its attempt chain.
    fn detail<'a>(&'a self, id: &'a str) -> PortFuture<'a, TaskDetail>;

    /// What the filters offer to choose from.
    fn choices(&self) -> PortFuture<'_, TaskChoices>;
}
