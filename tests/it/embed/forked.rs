//! A process that is forked after the GPU was opened.

use crate::common::gpu::open;
use wglm::{Error, ErrorKind, Gguf, LoadOptions, Model};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// In the child every call says so instead of hanging in the driver, and the parent goes on.
#[test]
fn a_forked_process_is_told() {
    let gpu = open(true);
    let file = Gguf::from_static(wglm::DEMO_MODEL).unwrap();
    // SAFETY: the child calls nothing but this thread's code and leaves without running destructors.
    let child = unsafe { fork() };
    if child == 0 {
        let forked = |error: Error| matches!(error, Error::Forked) && error.kind() == ErrorKind::DeviceLost;
        let checked = gpu.check().is_err_and(forked);
        let opened = gpu.reopen().is_err_and(forked);
        gpu.close(); // leaves the parent's device alone
        // SAFETY: as above.
        unsafe { _exit(if checked && opened { 0 } else { 1 }) }
    }
    let mut status = -1;
    // SAFETY: `child` is a child of this process, and `status` lives until the call returns.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child did not find out");
    assert!(gpu.check().is_ok());
    assert!(Model::load(&file, &gpu, &LoadOptions::default()).is_ok());
}
