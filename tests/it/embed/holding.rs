//! Tests how apps hold wglm's values: in statics, in state that threads and tasks share, and in structs. For that the
//! compiler has to check all types inside a model, including wgpu's, within its default limit of recursion: no crate of
//! these tests has a `#![recursion_limit]`.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, RwLock, mpsc};
use wglm::{Chat, Gguf, Gpu, Model, OwnedReply, Pool, ScheduledReply, Scheduler, Session, SharedChat};

static CHAT: OnceLock<Mutex<Chat>> = OnceLock::new();
type Chats = HashMap<String, Arc<Mutex<Option<Chat>>>>;
static CHATS: LazyLock<Mutex<Chats>> = LazyLock::new(Mutex::default);
static SCHEDULER: OnceLock<RwLock<Option<Scheduler>>> = OnceLock::new();

/// Like the state of a server or an object of a language binding.
#[derive(Clone)]
#[expect(dead_code, reason = "only the compiler looks at it")]
struct State {
    app: Arc<RwLock<Arc<App>>>,
}

#[expect(dead_code, reason = "only the compiler looks at it")]
struct App {
    gpu: Gpu,
    file: Gguf,
    model: Model,
    session: Mutex<Session>,
    pool: Arc<RwLock<Option<Pool>>>,
    chat: Mutex<Option<Chat>>,
    scheduler: Scheduler,
    shared: SharedChat,
    reply: Mutex<Option<OwnedReply>>,
    replies: Arc<Mutex<HashMap<u64, Box<ScheduledReply>>>>,
}

#[test]
fn an_app_needs_no_recursion_limit() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<State>();
    shared::<Arc<App>>();
    shared::<Arc<Mutex<Chat>>>();
    shared::<Arc<RwLock<Option<Box<State>>>>>();
    shared::<Mutex<mpsc::Sender<(State, Chat)>>>();
    shared::<Mutex<Box<dyn Any + Send>>>();
    sent::<mpsc::Sender<(State, Chat, OwnedReply)>>();
    sent::<Box<dyn FnOnce(State) -> Result<Chat, wglm::Error> + Send>>();
    #[cfg(feature = "stream")]
    {
        sent::<wglm::ReplyStream>();
        sent::<Mutex<wglm::ReplyStream<ScheduledReply>>>();
    }
    assert!(CHAT.get().is_none() && CHATS.lock().unwrap().is_empty() && SCHEDULER.get().is_none());
}

/// A future that a runtime may run on any thread, and that holds everything across an await.
#[test]
fn a_future_holds_it_across_an_await() {
    fn spawned<F: Future<Output = ()> + Send + 'static>(_: F) {}
    spawned(async {
        let held: Option<(State, Arc<Mutex<Chat>>, SharedChat, Scheduler)> = None;
        std::future::ready(()).await;
        drop(held);
    });
}

/// A binding catches panics around every call (UniFFI requires these traits).
#[test]
fn a_model_crosses_a_catch_of_panics() {
    fn caught<T: UnwindSafe + RefUnwindSafe>() {}
    caught::<Arc<Mutex<Chat>>>();
    caught::<Arc<Mutex<OwnedReply>>>();
}
