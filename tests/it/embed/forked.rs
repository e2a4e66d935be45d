//! A process that is forked after the GPU was opened.

use crate::common::gpu::open;
use std::time::Duration;
use wglm::{Error, ErrorKind, Gguf, Gpu, LoadOptions, Model, Scheduler, SchedulerOptions, Session};

const NO_WAIT: i32 = 1;
const KILL: i32 = 9;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn kill(process: i32, signal: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// How a child ends, which is killed if it hangs.
fn ended(child: i32) -> i32 {
    let mut status = -1;
    for _ in 0..1200 {
        // SAFETY: `child` is a child of this process that nobody else waits for, and `status` lives until the call returns.
        match unsafe { waitpid(child, &mut status, NO_WAIT) } {
            0 => std::thread::sleep(Duration::from_millis(50)),
            found => {
                assert_eq!(found, child);
                return status;
            }
        }
    }
    // SAFETY: as above; the child has not been waited for, so that its number is no other process's.
    unsafe {
        kill(child, KILL);
        waitpid(child, &mut status, 0);
    }
    panic!("the child hangs");
}

fn is_forked<T>(result: Result<T, Error>) -> bool {
    // What was made after all is not dropped: that calls the driver.
    result
        .map(std::mem::forget)
        .is_err_and(|error| matches!(error, Error::Forked) && error.kind() == ErrorKind::DeviceLost)
}

/// What exists before the process is forked.
struct Parent {
    gpu: Gpu,
    file: Gguf,
    model: Model,
    session: Session,
}

impl Parent {
    fn new() -> wglm::Result<Self> {
        let (gpu, file) = (open(true), Gguf::from_static(wglm::DEMO_MODEL)?);
        let model = Model::load(&file, &gpu, &LoadOptions { context: Some(256), ..LoadOptions::default() })?;
        let mut session = Session::new(&model)?;
        session.feed(&[7])?;
        Ok(Self { gpu, file, model, session })
    }

    /// The number of the first call that does not say that the process was forked; 0 if all do.
    fn first_that_works(&mut self) -> i32 {
        let Self { gpu, file, model, session } = self;
        let called = [
            is_forked(gpu.check()),
            is_forked(gpu.reopen()),
            is_forked(Model::load(file, gpu, &LoadOptions::default())),
            is_forked(Session::new(model)),
            is_forked(Scheduler::new(model, &SchedulerOptions::default())),
            is_forked(session.feed(&[8])),
        ];
        called.iter().position(|forked| !forked).map_or(0, |index| index as i32 + 1)
    }
}

/// In the child every call says so instead of hanging in the driver, and the parent goes on.
#[test]
fn a_forked_process_is_told() {
    let mut parent = Parent::new().unwrap();
    // SAFETY: the child calls nothing but this thread's code and leaves without running destructors.
    let child = unsafe { fork() };
    if child == 0 {
        let first = parent.first_that_works();
        parent.gpu.close(); // leaves the parent's device alone
        // SAFETY: as above.
        unsafe { _exit(first) }
    }
    let status = ended(child);
    assert_eq!(status, 0, "exit status {}: the number of the first call that did not find out", status >> 8);
    assert!(parent.gpu.check().is_ok() && parent.session.feed(&[8]).is_ok());
    assert!(Model::load(&parent.file, &parent.gpu, &LoadOptions::default()).is_ok());
}
