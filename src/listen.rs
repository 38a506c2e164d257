//! Connections: accepted, timed, and closed with grace.
//!
//! The framework's own loop has no time limits; a caller that opens a connection and says nothing, or
//! sends half a header, would hold it for ever.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

/// A request's headers must have arrived within this, from the connection's start or the last answer.
const HEADER_TIME: Duration = Duration::from_secs(75);
/// All headers of a request together, in bytes.
const HEADER_CAP: usize = 64 * 1_024;
/// How long to wait when the machine has no more file descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// Serves until `close` resolves, then lets what is under way end; idle connections close at once.
pub(crate) async fn serve(listener: TcpListener, router: Router, close: impl Future<Output = ()>) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_CAP)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_CAP as u32);
    let graceful = GracefulShutdown::new();
    tokio::pin!(close);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut close => break,
        };
        match accepted {
            Ok((stream, peer)) => accept(&builder, &graceful, stream, peer, &router),
            // The peer is gone already, or there is no descriptor left: the next may fare better.
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
    drop(listener);
    graceful.shutdown().await;
}

fn accept(
    builder: &Builder<TokioExecutor>,
    graceful: &GracefulShutdown,
    stream: TcpStream,
    peer: SocketAddr,
    router: &Router,
) {
    // Answers are small and wanted at once; where it can't be set they still arrive.
    let _ = stream.set_nodelay(true);
    let router = router.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let router = router.clone();
        async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        // How a connection ends is the caller's business; its tasks record their own ends.
        let _ = connection.await;
    });
}
