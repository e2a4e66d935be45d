//! The devices that tests share.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use wglm::{Cancel, Gpu, GpuOptions, Matrices};

/// The number of shared devices. A software driver compiles the kernels of a device one after another on one core, so
/// two devices keep two cores busy.
const DEVICES: usize = 2;
/// The number of threads that use each of them.
static USERS: [AtomicUsize; DEVICES] = [const { AtomicUsize::new(0) }; DEVICES];

/// The index of the device that a thread uses. Every test runs in a thread of its own.
struct Place(usize);

impl Place {
    /// Takes the device that the fewest threads use.
    fn new() -> Self {
        let place = (0..DEVICES).min_by_key(|device| USERS[*device].load(Ordering::Relaxed)).unwrap_or_default();
        USERS[place].fetch_add(1, Ordering::Relaxed);
        Self(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        USERS[self.0].fetch_sub(1, Ordering::Relaxed);
    }
}

/// A device, always the same one within a test. Other tests use it as well, so a test that counts what a device does
/// [opens](open) its own.
pub fn gpu() -> &'static Gpu {
    static DEVICES_OPEN: [OnceLock<Gpu>; DEVICES] = [const { OnceLock::new() }; DEVICES];
    thread_local! {
        static PLACE: Place = Place::new();
    }
    DEVICES_OPEN[PLACE.with(|place| place.0)].get_or_init(|| open(true))
}

/// A shared device that is used without subgroup operations.
pub fn gpu_without_subgroups() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(|| open(false))
}

/// The options of the tests' devices. Their shaders check no indices, like those that users run: a driver takes twice
/// as long to compile shaders that do. They use no cooperative matrices, which multiply f16: most bounds here are those
/// of sums in f32.
pub fn options() -> GpuOptions {
    GpuOptions { checks: false, matrices: false, ..GpuOptions::from_env().unwrap() }
}

/// Opens a device, with or without subgroup operations.
pub fn open(subgroups: bool) -> Gpu {
    open_with(&GpuOptions { subgroups, ..options() })
}

/// Opens a device with everything that the adapter has, and with shaders that check every index, as in debug builds.
pub fn open_checked() -> Gpu {
    open_with(&GpuOptions { checks: true, matrices: true, ..options() })
}

/// A device with cooperative matrices; `None` if the adapter has none.
pub fn gpu_with_matrices() -> Option<&'static Gpu> {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    let gpu = GPU.get_or_init(|| open_with(&GpuOptions { matrices: true, ..options() }));
    Some(gpu).filter(|gpu| gpu.capabilities().matrices != Matrices::None)
}

fn open_with(options: &GpuOptions) -> Gpu {
    Gpu::open(options).expect("a GPU driver; `./test` installs a software one")
}

/// Drops submissions of a device by their numbers, which count from now, beginning with 1.
pub fn drop_submissions(gpu: &Gpu, dropped: Range<u64>) {
    let (count, device) = (AtomicU64::new(0), gpu.clone());
    gpu.before_submissions(move || {
        device.drop_work(dropped.contains(&(count.fetch_add(1, Ordering::Relaxed) + 1)));
    });
}

/// Drops submissions of a device while `act` runs, by their numbers, beginning with 1.
pub fn dropping<T>(gpu: &Gpu, dropped: Range<u64>, act: impl FnOnce() -> T) -> T {
    drop_submissions(gpu, dropped);
    let done = act();
    gpu.before_submissions(|| ());
    gpu.drop_work(false);
    done
}

/// Cancels work when it makes its submission number `after`, beginning with 1, or before it begins if that is 0.
pub fn cancelling<T>(gpu: &Gpu, after: u64, act: impl FnOnce(&Cancel) -> T) -> T {
    let (cancel, count) = (Cancel::default(), AtomicU64::new(0));
    let ours = cancel.clone();
    let submitted = move |more| {
        if count.fetch_add(more, Ordering::Relaxed) + more == after {
            ours.cancel();
        }
    };
    submitted(0);
    gpu.before_submissions(move || submitted(1));
    let done = act(&cancel);
    gpu.before_submissions(|| ());
    done
}
