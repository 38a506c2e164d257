//! The server as a whole, on real sockets: a tree that mirrors its routes.

mod admin;
mod app;
mod architecture;
mod cli;
mod crash;
mod databases;
mod generate;
mod store;
