//! SQLite's log is copied into the database beside the ledger's writer, not by it.
//!
//! A commit is an append to the log. Sooner or later the log's pages have to be copied into the
//! database, with two flushes of the disk; a writer that does it itself keeps every caller waiting
//! meanwhile. Copying *passively*, on another connection, neither waits for writers nor keeps them
//! waiting (<https://sqlite.org/c3ref/wal_checkpoint_v2.html>). But a log that is written to all the
//! time is never copied to its end, and then it can't begin anew: so a writer still copies what is left
//! once the log has [`LOG_PAGES`].

use sqlx::{AnyConnection, Executor};
use tokio::sync::mpsc;

use super::{Dialect, Store, StoreError};

/// Pages of 4 KiB in the log before a writer copies by itself: 128 MiB.
pub(super) const LOG_PAGES: u32 = 32_000;
/// Ledger commands between two copies. A command dirties one to two pages, so that is some 16 MiB.
const COMMANDS: usize = 2_500;

/// Has the log copied now and then. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    /// Since the last copy was asked for.
    commands: usize,
    due: mpsc::Sender<()>,
}

impl Checkpointer {
    /// Waits on a connection of its own; `None` on PostgreSQL, which does this by itself.
    pub(crate) fn start(store: &Store) -> Option<Self> {
        if store.dialect() != Dialect::Sqlite {
            return None;
        }
        let (due, asked) = mpsc::channel(1);
        tokio::spawn(copy_when_asked(store.clone(), asked));
        Some(Self { commands: 0, due })
    }

    /// Counts what was committed.
    pub(crate) fn committed(&mut self, commands: usize) {
        self.commands += commands;
        if self.commands >= COMMANDS {
            self.commands = 0;
            // Full: a copy is due already.
            let _ = self.due.try_send(());
        }
    }
}

async fn copy_when_asked(store: Store, mut asked: mpsc::Receiver<()>) {
    let mut connection = None;
    while asked.recv().await.is_some() {
        match copy(&store, connection.take()).await {
            Ok(kept) => connection = Some(kept),
            Err(error) => tracing::warn!(%error, "the database's log could not be copied"),
        }
    }
}

async fn copy(store: &Store, connection: Option<AnyConnection>) -> Result<AnyConnection, StoreError> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => store.connect().await?,
    };
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").await?;
    Ok(connection)
}
