//! Tests conversations that go to disk and come back, in the same program and after its end.

use super::{CONTEXT, begin, greedy, load, model_on, request, rest, said, stats, words_of};
use crate::common::gpu::gpu;
use crate::hostile_models::small::Small;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use wglm::{
    CacheType, ChatState, DiskCache, DiskCacheState, DraftKind, Error, Event, GenerateOptions, Message, Model, Reuse,
    Scheduler, SchedulerOptions, Speculation, Tenant,
};

/// The tokens of a page.
const PAGE: usize = 256;
/// A limit that no test reaches.
const MUCH: u64 = 1 << 30;

const STORY: &str = "An owl sat on a branch and looked at a hill. ";

/// A small model, because pages have many tokens. Prompts are computed eight tokens at a time, which is a little faster
/// and gives the same bits as one at a time, whatever is read from disk.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| loaded(&Small::like_fable()))
}

fn loaded(small: &Small) -> Model {
    load(&small.open().unwrap(), gpu(), 8)
}

fn scheduler_with(options: SchedulerOptions) -> Scheduler {
    Scheduler::new(model(), &options).unwrap()
}

/// A request of somewhat more than a page, whose first tokens are the same for every `question`.
fn long(question: &str) -> ChatState {
    let mut asked = request(question, 8);
    asked.options.logprobs = Some(2);
    asked.messages.insert(0, Message::system(STORY.repeat(13)));
    asked
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn open(folder: &Path) -> DiskCache {
    DiskCache::open(folder, MUCH).unwrap()
}

fn on(disk: &DiskCache, sessions: usize) -> Scheduler {
    scheduler_with(SchedulerOptions { sessions, disk: Some(disk.clone()), ..SchedulerOptions::default() })
}

/// All events of a reply but the statistics, and what of the prompt was cached.
fn told(scheduler: &Scheduler, request: &ChatState) -> (Vec<Event>, Reuse) {
    let mut events = rest(&mut scheduler.chat(request.clone()).unwrap());
    let prompt = stats(&events).prompt;
    events.retain(|event| !matches!(event, Event::Done(_) | Event::Prompt { .. }));
    (events, prompt)
}

/// The same of a scheduler that is created for it on this folder, and dropped.
fn told_anew(folder: &Path, request: &ChatState) -> (Vec<Event>, Reuse, DiskCacheState) {
    let disk = open(folder);
    let (events, prompt) = told(&on(&disk, 1), request);
    (events, prompt, disk.state())
}

/// How much of a prompt was found in the cache. No more of it is computed than the first part.
fn found(scheduler: &Scheduler, request: &ChatState) -> usize {
    match scheduler.chat(request.clone()).unwrap().next() {
        Some(Ok(Event::Prompt { done, .. })) => done,
        other => panic!("no `Prompt` but {other:?}"),
    }
}

/// The files of pages in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "kv")).collect();
    paths.sort();
    paths
}

fn bytes(folder: &Path) -> u64 {
    files(folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

/// A reply after the start has the log-probabilities of one that computes everything, bit by bit.
#[test]
fn extended_a_prompt_comes_back_after_the_program_was_started_again() {
    let (folder, asked) = (folder(), long("What did the owl see?"));
    let (first, computed, state) = told_anew(folder.path(), &asked);
    assert!(computed.cached == 0 && computed.new > PAGE + 8, "{computed:?}");
    assert_eq!((state.read, state.written), (0, 1));
    assert_eq!((state.bytes, state.most_bytes), (bytes(folder.path()), MUCH));
    let (second, found, state) = told_anew(folder.path(), &asked);
    assert_eq!((found.cached, found.cached + found.new), (PAGE, computed.new));
    assert_eq!((state.read, state.written, files(folder.path()).len()), (1, 0, 1));
    assert!(first.iter().any(|event| matches!(event, Event::Token(_))), "{first:?}");
    assert_eq!(second, first);
    let (_, other, _) = told_anew(folder.path(), &long("Who lived on the hill?"));
    assert_eq!(other.cached, PAGE, "the beginning that both have");
}

/// The tokens of a prompt that ends before the first page does, and of a reply that goes beyond it.
fn across(scheduler: &Scheduler) -> Vec<u32> {
    let mut tokens = model().tokenizer().unwrap().encode(&STORY.repeat(14), false).unwrap();
    tokens.truncate(PAGE - 6);
    let options = GenerateOptions { logprobs: Some(0), ..greedy(12) };
    let events = rest(&mut scheduler.generate(tokens.clone(), options).unwrap());
    tokens.extend(events.iter().filter_map(|event| match event {
        Event::Token(token) => Some(token.chosen.token),
        _ => None,
    }));
    assert!(tokens.len() > PAGE + 2, "{events:?}");
    tokens
}

/// A conversation whose slot was taken over comes back, and so does its reply.
#[test]
fn extended_a_slot_that_is_taken_over_is_stored() {
    let folder = folder();
    let disk = open(folder.path());
    let scheduler = on(&disk, 1);
    let tokens = across(&scheduler);
    disk.wait();
    assert_eq!(disk.state().written, 0, "its prompt is less than a page");
    told(&scheduler, &request("What is seven plus five?", 2));
    disk.wait();
    assert_eq!(disk.state().written, 1);
    let again = stats(&rest(&mut scheduler.generate(tokens, greedy(1)).unwrap()));
    assert_eq!((again.prompt.cached, disk.state().read), (PAGE, 1));
}

/// Conversations whose memory others need are stored too.
#[test]
fn extended_a_conversation_that_is_dropped_for_others_is_stored() {
    let folder = folder();
    let disk = open(folder.path());
    let options = SchedulerOptions { sessions: 2, tokens: Some(CONTEXT), ..SchedulerOptions::default() };
    let scheduler = scheduler_with(SchedulerOptions { disk: Some(disk.clone()), ..options });
    across(&scheduler);
    disk.wait();
    assert_eq!(disk.state().written, 0);
    let mut other = long("What did the fox see?");
    other.messages[0] = Message::system("A fox ran over the hill, and a hare ran after it. ".repeat(14));
    told(&scheduler, &other);
    disk.wait();
    assert_eq!(disk.state().written, 2, "one page each: {:?}", scheduler.state());
}

/// `store` writes what the slots hold, and so does the last drop.
#[test]
fn extended_conversations_are_stored_at_the_end() {
    for drops in [false, true] {
        let folder = folder();
        let disk = open(folder.path());
        let scheduler = on(&disk, 2);
        across(&scheduler);
        disk.wait();
        assert_eq!(files(folder.path()).len(), 0);
        if drops {
            drop(scheduler)
        } else {
            scheduler.store()
        }
        assert_eq!(files(folder.path()).len(), 1, "drops: {drops}");
    }
}

/// The files that were unused for longest are removed first, and there are never more than the limit allows.
#[test]
fn extended_the_limit_is_kept() {
    let folder = folder();
    let animals = ["owl", "fox", "hare", "mouse"];
    let asked = animals.map(|animal| {
        let mut asked = long("What did it see?");
        asked.messages[0] = Message::system(format!("A {animal} sat on a branch and looked at a hill. ").repeat(14));
        asked
    });
    told_anew(folder.path(), &asked[0]);
    let page = bytes(folder.path());
    let most = 2 * page + page / 2;
    let disk = DiskCache::open(folder.path(), most).unwrap();
    let scheduler = on(&disk, 1);
    let cached = |index: usize| {
        let cached = told(&scheduler, &asked[index]).1.cached;
        disk.wait();
        assert!(bytes(folder.path()) <= most && disk.state().bytes == bytes(folder.path()), "{:?}", disk.state());
        cached >= PAGE
    };
    // The owl is used again after the fox, so the hare replaces the fox.
    let found = [1, 0, 2, 0, 1, 3].map(cached);
    assert_eq!(found, [false, true, false, true, false, false]);
    assert_eq!((files(folder.path()).len(), disk.state().removed), (2, 3));
    drop((scheduler, disk));
    let state = DiskCache::open(folder.path(), page).unwrap().state();
    assert_eq!((state.removed, state.bytes, files(folder.path()).len()), (1, page, 1), "a lower limit");
    let disk = DiskCache::open(folder.path(), page - 1).unwrap();
    told(&on(&disk, 1), &asked[0]);
    disk.wait();
    let DiskCacheState { dropped, written, bytes, .. } = disk.state();
    assert!(dropped > 0 && (written, bytes) == (0, 0), "a limit below a page: {:?}", disk.state());
}

/// Pages of another type of cache, another model or another tenant are not found.
#[test]
fn extended_only_its_own_pages_are_found() {
    let (folder, asked) = (folder(), long("What did the owl see?"));
    told_anew(folder.path(), &asked);
    let disk = open(folder.path());
    let options =
        |cache| SchedulerOptions { sessions: 1, cache, disk: Some(disk.clone()), ..SchedulerOptions::default() };
    let other = CacheType::ALL.into_iter().find(|ty| *ty != model().cache().ty);
    assert_eq!(found(&scheduler_with(options(other)), &asked), 0, "{other:?}");
    let anna = on(&disk, 1).for_tenant(Tenant { turns: 1, cache: 1 });
    assert_eq!(told(&anna, &asked).1.cached, 0);
    drop(anna);
    let ben = on(&disk, 1).for_tenant(Tenant { turns: 2, cache: 2 });
    assert_eq!(found(&ben, &asked), 0);
    assert_eq!(disk.state().read, 0);
    let anna = on(&disk, 1).for_tenant(Tenant { turns: 5, cache: 1 });
    assert_eq!(told(&anna, &asked).1.cached, PAGE);
    // Another model of the same shape.
    let mut small = Small::like_fable();
    small.poison = Some(("output_norm.weight".to_owned(), 1.0));
    let model = loaded(&small);
    let scheduler = Scheduler::new(&model, &options(None)).unwrap();
    assert_eq!(found(&scheduler, &asked), 0, "another model's");
}

/// A file that is damaged, cut, or another page's under this name is removed, and the prompt computed.
#[test]
fn extended_damaged_files_are_removed() {
    let (folder, asked) = (folder(), long("What did the owl see?"));
    let (first, ..) = told_anew(folder.path(), &asked);
    let path = files(folder.path()).remove(0);
    for case in ["damaged", "cut", "empty", "another"] {
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        match case {
            "damaged" => bytes[middle] ^= 4,
            "cut" => bytes.truncate(middle),
            "empty" => bytes.clear(),
            _ => bytes[16] ^= 1, // its name
        }
        fs::write(&path, bytes).unwrap();
        let (second, prompt, state) = told_anew(folder.path(), &asked);
        assert_eq!((&second, prompt.cached, state.damaged, state.read), (&first, 0, 1, 0), "{case}");
        let (.., prompt, state) = told_anew(folder.path(), &asked);
        assert_eq!((prompt.cached, state.damaged), (PAGE, 0), "{case}: it was written again");
    }
}

/// What a killed process left is removed, and foreign files are not touched.
#[test]
fn extended_leftovers_are_removed() {
    let (folder, asked) = (folder(), long("What did the owl see?"));
    told_anew(folder.path(), &asked);
    let name = files(folder.path())[0].file_name().unwrap().to_str().unwrap().to_owned();
    let left = folder.path().join(format!("{name}.41-00ff.new"));
    let kept = ["notes.txt", "notes.txt.41-00ff.new", "0123.kv"].map(|name| folder.path().join(name));
    kept.iter().chain([&left]).for_each(|path| fs::write(path, "part").unwrap());
    drop(open(folder.path()));
    assert!(!left.exists() && kept.iter().all(|path| path.exists()));
    assert_eq!(told_anew(folder.path(), &asked).1.cached, PAGE);
}

/// Nobody else can read the files, and a folder that others can open is refused.
#[cfg(unix)]
#[test]
fn extended_only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let parent = folder();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = parent.path().join("made/cache");
    told_anew(&folder, &long("What did the owl see?"));
    let all: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!((all.len(), mode(&folder)), (2, 0o700));
    assert!(all.iter().all(|path| mode(path) == 0o600), "{all:?}");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();
    let refused = DiskCache::open(&folder, MUCH).unwrap_err();
    assert!(matches!(&refused, Error::Argument { .. }) && refused.to_string().contains("chmod 700"), "{refused}");
    let empty = parent.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o755)).unwrap();
    drop(open(&empty));
    assert_eq!(mode(&empty), 0o700);
    assert!(matches!(DiskCache::open(&empty, 0), Err(Error::Argument { .. })));
    assert!(matches!(DiskCache::open(files(&folder)[0].join("x"), MUCH), Err(Error::Io { .. })));
}

/// Two caches on one folder, as two processes have, write at the same time and stay below the limit.
#[test]
fn extended_several_writers_share_a_folder() {
    let folder = folder();
    told_anew(folder.path(), &long("What?"));
    let page = bytes(folder.path());
    let caches = [(); 2].map(|()| DiskCache::open(folder.path(), 3 * page).unwrap());
    std::thread::scope(|scope| {
        for (number, disk) in caches.iter().enumerate() {
            scope.spawn(move || {
                let scheduler = on(disk, 1);
                for turn in 0..4 {
                    let mut asked = long("What?");
                    let text = format!("Number {} sat on a branch and looked at a hill. ", (number + turn) % 3);
                    asked.messages[0] = Message::system(text.repeat(12));
                    told(&scheduler, &asked);
                }
            });
        }
    });
    caches.iter().for_each(DiskCache::wait);
    assert!(bytes(folder.path()) <= 3 * page, "{} of {page} bytes a page", bytes(folder.path()));
    let failed: u64 = caches.iter().map(|disk| disk.state().failures + disk.state().damaged).sum();
    assert_eq!((failed, files(folder.path()).len()), (0, 3));
}

/// A page is read while another reply is being generated, and the reply that waits for it is the same.
#[test]
fn extended_others_continue_while_pages_are_read() {
    let (folder, asked) = (folder(), long("What did the owl see?"));
    let (first, ..) = told_anew(folder.path(), &asked);
    let disk = open(folder.path());
    let scheduler = on(&disk, 2);
    let mut other = scheduler.chat(request("Tell me a story.", 40)).unwrap();
    begin(&mut other);
    let (second, prompt) = told(&scheduler, &asked);
    assert_eq!((said(&second), prompt.cached, disk.state().read), (said(&first), PAGE, 1));
    assert!(stats(&rest(&mut other)).generated > 0);
}

/// A cache in memory that reaches further than the disk stays, and one that reaches less far is continued from disk.
#[test]
fn extended_the_longer_cache_is_used() {
    let (folder, asked) = (folder(), long("What did the owl see?"));
    let disk = open(folder.path());
    let scheduler = on(&disk, 1);
    told(&scheduler, &asked);
    let (_, again) = told(&scheduler, &asked);
    assert_eq!((again.new, disk.state().read), (1, 0), "all of it was in memory");
    let mut shorter = asked.clone();
    shorter.messages[0] = Message::system(STORY.repeat(4));
    told(&scheduler, &shorter);
    disk.wait();
    let (_, from_disk) = told(&scheduler, &asked);
    assert_eq!((from_disk.cached, disk.state().read), (PAGE, 1));
}

/// Tokens by themselves, in a context of several pages, are stored to the last full page.
#[test]
fn extended_many_pages_come_back() {
    let folder = folder();
    let tokens: Vec<u32> = (0..3 * PAGE as u32 + 8).map(|index| 100 + index * 7 % 311).collect();
    let generate = |tokens: &[u32]| {
        let disk = Some(open(folder.path()));
        let options = SchedulerOptions { sessions: 1, context: Some(1024), disk, ..SchedulerOptions::default() };
        Scheduler::new(model(), &options).unwrap().generate(tokens.to_vec(), greedy(1)).unwrap()
    };
    let cached = |tokens: &[u32]| stats(&rest(&mut generate(tokens))).prompt.cached;
    assert_eq!([cached(&tokens), cached(&tokens)], [0, 3 * PAGE]);
    let first = generate(&tokens[..3 * PAGE]).next();
    let is_found = matches!(first, Some(Ok(Event::Prompt { done, .. })) if done == 2 * PAGE);
    assert!(is_found, "the last token has to be computed: {first:?}");
    let mut changed = tokens.clone();
    changed[600] += 1;
    assert_eq!([cached(&changed), cached(&changed)], [2 * PAGE, 3 * PAGE]);
    assert_eq!(files(folder.path()).len(), 3 + 1, "the first two pages are stored once");
}

/// Storing a conversation takes several rounds if little memory waits for the disk. None of it is lost, also when
/// another conversation takes its slot over meanwhile.
#[test]
fn extended_a_conversation_that_is_larger_than_the_queue_is_stored() {
    let folder = folder();
    let tokens = |first: u32| -> Vec<u32> { (0..3 * PAGE as u32 + 8).map(|index| first + index * 7 % 311).collect() };
    let disk = DiskCache::open_with(folder.path(), MUCH, 1).unwrap(); // a page waits in any case
    let options =
        SchedulerOptions { sessions: 1, context: Some(1024), disk: Some(disk.clone()), ..SchedulerOptions::default() };
    let scheduler = Scheduler::new(model(), &options).unwrap();
    for (first, pages) in [(100, 3), (500, 2)] {
        rest(&mut scheduler.generate(tokens(first)[..pages * PAGE + 8].to_vec(), greedy(1)).unwrap());
    }
    scheduler.store();
    assert_eq!((files(folder.path()).len(), disk.state().dropped), (5, 0), "{:?}", disk.state());
    let again = stats(&rest(&mut scheduler.generate(tokens(100), greedy(1)).unwrap()));
    assert_eq!((again.prompt.cached, disk.state().read), (3 * PAGE, 3));
}

/// A cancelled reply is dropped at once while the GPU pauses: nothing waits for the GPU with the state locked. Its
/// conversation is stored after the pause.
#[test]
fn extended_a_dropped_reply_is_stored_after_a_pause() {
    let folder = folder();
    let disk = open(folder.path());
    let scheduler = on(&disk, 1);
    let options = words_of(model(), "", 8).options;
    let mut reply = scheduler.chat(ChatState { options, ..long("What did the owl see?") }).unwrap();
    begin(&mut reply);
    let pause = model().gpu().pause();
    let (dropped, is_dropped) = std::sync::mpsc::channel();
    let dropping = std::thread::spawn(move || {
        drop(reply);
        dropped.send(()).unwrap();
    });
    let in_time = is_dropped.recv_timeout(std::time::Duration::from_secs(60));
    drop(pause); // before anything fails, since other tests use the GPU
    dropping.join().unwrap();
    assert!(in_time.is_ok(), "the drop has waited for the end of the pause");
    scheduler.store();
    assert_eq!(disk.state().written, 1);
}

/// A context of many pages, and a prompt of six, which are read in more than one round.
const LONG: usize = 2048;

fn six_pages(first: u32) -> Vec<u32> {
    (0..6 * PAGE as u32 + 8).map(|index| first + index * 7 % 311).collect()
}

/// Pages that are read in several rounds: all of them, with one damaged in the middle, with a cache in memory that is
/// too small for another conversation beside it, and with a reply that is cancelled meanwhile.
#[test]
fn extended_pages_come_back_in_several_rounds() {
    let (folder, tokens) = (folder(), six_pages(100));
    let with = |memory: Option<usize>, sessions: usize| {
        let disk = open(folder.path());
        let options = SchedulerOptions { sessions, context: Some(LONG), tokens: memory, ..SchedulerOptions::default() };
        let options = SchedulerOptions { disk: Some(disk.clone()), ..options };
        (Scheduler::new(model(), &options).unwrap(), disk)
    };
    let said = |scheduler: &Scheduler, tokens: &[u32]| {
        let options = GenerateOptions { logprobs: Some(2), ..greedy(4) };
        let events = rest(&mut scheduler.generate(tokens.to_vec(), options).unwrap());
        let cached = stats(&events).prompt.cached;
        let tokens = events.into_iter().filter(|event| matches!(event, Event::Token(_)));
        (tokens.collect::<Vec<_>>(), cached)
    };
    let wanted = {
        let (scheduler, disk) = with(None, 1);
        let (wanted, cached) = said(&scheduler, &tokens);
        scheduler.store();
        assert_eq!((cached, disk.state().written), (0, 6));
        wanted
    };
    {
        let (scheduler, disk) = with(Some(8 * PAGE), 2);
        assert_eq!(said(&scheduler, &six_pages(500)[..2 * PAGE]).1, 0);
        assert_eq!(said(&scheduler, &tokens), (wanted.clone(), 6 * PAGE), "the other one leaves its memory");
        assert!(disk.state().read >= 6);
    }
    {
        let (scheduler, _) = with(None, 1);
        let reply = scheduler.generate(tokens.clone(), greedy(4)).unwrap();
        let cancel = reply.cancel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while scheduler.state().slots[0].tokens < PAGE {
                    std::thread::yield_now();
                }
                cancel.cancel();
            });
            reply.for_each(|event| drop(event.unwrap()));
        });
        assert_eq!(said(&scheduler, &tokens).0, wanted, "after a cancelled one");
    }
    // The name of a page is known by the order of the times.
    let mut paths = files(folder.path());
    paths.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().modified().unwrap()));
    let mut bytes = fs::read(&paths[4]).unwrap();
    bytes[1000] ^= 1;
    fs::write(&paths[4], bytes).unwrap();
    let (scheduler, disk) = with(None, 1);
    assert_eq!(said(&scheduler, &tokens), (wanted, 4 * PAGE));
    assert_eq!((disk.state().damaged, disk.state().read), (1, 4));
}

/// A link, a pipe or a folder with the name of a page is replaced, and nothing is written through it.
#[cfg(unix)]
#[test]
fn extended_whatever_has_the_name_of_a_page_is_replaced() {
    let asked = long("What did the owl see?");
    let (elsewhere, folder) = (folder(), folder());
    told_anew(folder.path(), &asked);
    let page = files(folder.path()).remove(0);
    let precious = elsewhere.path().join("precious");
    fs::write(&precious, "text").unwrap();
    for case in ["link", "pipe", "folder"] {
        fs::remove_file(&page).unwrap();
        match case {
            "link" => std::os::unix::fs::symlink(&precious, &page).unwrap(),
            "pipe" => assert!(std::process::Command::new("mkfifo").arg(&page).status().unwrap().success()),
            _ => fs::create_dir(&page).unwrap(),
        }
        let (_, prompt, state) = told_anew(folder.path(), &asked);
        assert_eq!((prompt.cached, state.damaged), (0, 0), "{case}");
        assert!(fs::symlink_metadata(&page).unwrap().is_file(), "{case}");
    }
    assert_eq!(fs::read(&precious).unwrap(), b"text");
    assert_eq!(told_anew(folder.path(), &asked).1.cached, PAGE);
}

/// A folder of another user, and one that cannot be locked or written to, are refused.
#[cfg(unix)]
#[test]
fn a_folder_that_is_of_no_use_is_refused() {
    let (other, folder) = (folder(), folder());
    drop((open(folder.path()), open(other.path()))); // they are closed to other users
    let lock = folder.path().join("lock");
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(other.path().join("lock"), &lock).unwrap();
    assert!(matches!(DiskCache::open(folder.path(), MUCH), Err(Error::Io { .. })));
    if std::os::unix::fs::chown(other.path(), Some(1), None).is_ok() {
        let refused = DiskCache::open(other.path(), MUCH).unwrap_err();
        assert!(refused.to_string().contains("the user who runs the program"), "{refused}");
    }
}

/// A disk that fails stops no reply.
#[test]
fn extended_replies_continue_although_the_disk_fails() {
    let (folder, asked) = (folder(), long("What did the owl see?"));
    let disk = open(folder.path());
    fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(told(&on(&disk, 1), &asked).1.cached, 0);
    disk.wait();
    let DiskCacheState { failures, dropped, written, .. } = disk.state();
    assert!(failures > 0 && dropped > 0 && written == 0, "{:?}", disk.state());
}

/// A conversation is stored while a polled reply is being generated, which goes on.
#[test]
fn extended_storing_does_not_wait_for_the_end_of_replies() {
    let folder = folder();
    let disk = open(folder.path());
    let scheduler = on(&disk, 2);
    across(&scheduler);
    let mut reply = scheduler.chat(request("Tell me a story.", 400)).unwrap();
    let _ = reply.try_next();
    assert_eq!(disk.state().written, 0);
    scheduler.store();
    assert_eq!(disk.state().written, 1);
    assert!(scheduler.state().slots.iter().any(|slot| slot.busy), "the reply is not complete");
}

/// KV rows of the multi-token-prediction block that were not computed are not stored: a page without them is smaller.
/// With them, drafts are as good after a start as before.
#[test]
fn extended_rows_of_the_block_are_stored_if_they_were_computed() {
    let model = model_on(gpu(), 8); // whose drafts are good
    let drafting = |kind: DraftKind, folder: &Path| {
        let options = SchedulerOptions { sessions: 1, disk: Some(open(folder)), ..SchedulerOptions::default() };
        let scheduler = Scheduler::new(&model, &options).unwrap();
        let mut asked = long("What did the owl see?");
        asked.options.logprobs = None; // with them no drafts are made
        asked.options.speculation = Speculation { kind, most: Some(3) };
        let events = rest(&mut scheduler.chat(asked).unwrap());
        let stats = stats(&events);
        (said(&events), stats.prompt.cached, [stats.drafts.drafted, stats.drafts.accepted])
    };
    let [without, with] = [folder(), folder()];
    let (said, cached, drafts) = drafting(DraftKind::Off, without.path());
    assert_eq!((cached, drafts), (0, [0, 0]));
    let later = drafting(DraftKind::Mtp, without.path());
    assert_eq!((&later.0, later.1, files(without.path()).len()), (&said, PAGE, 1), "its layers are found");
    let first = drafting(DraftKind::Mtp, with.path());
    assert!(first.2[0] > 0 && first.1 == 0, "{first:?}");
    assert!(bytes(with.path()) > bytes(without.path()), "the block has rows too");
    assert_eq!(drafting(DraftKind::Mtp, with.path()), (said, PAGE, first.2));
}
