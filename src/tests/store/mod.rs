//! One story a table family, told on SQLite and on PostgreSQL.

mod access;
mod configuration;
mod ledger;
mod retention;
