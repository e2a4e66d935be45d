//! The file of a report, which loses nothing if the program or the machine crashes. An existing file is replaced once
//! the first line of the new one is on the disk.

use super::private::Private;
use anyhow::Context;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wglm_engine::instruments::{Readers, Replacement};

/// How often the file is synced to the disk: a driver may freeze the machine.
const THROUGH: Duration = Duration::from_secs(1);

/// The file, which is only appended to.
pub struct ReportFile {
    file: Replacement,
    pub path: PathBuf,
    pub private: Private,
    synced: Instant,
}

impl ReportFile {
    /// Creates the named file, or else a new one in this folder.
    pub fn create(named: Option<&Path>, private: Private) -> anyhow::Result<Self> {
        let path = named.map_or_else(unused, |path| Ok(path.to_owned()));
        let created = path.and_then(|path| Ok((Replacement::begin(&path, Readers::Usual)?, path)));
        let name = named.map_or_else(|| Path::new("wglm-report.txt").display(), Path::display);
        let (file, path) = created.with_context(|| format!("cannot create {name}; name another file with -o"))?;
        Ok(Self { file, path, private, synced: Instant::now() })
    }

    /// Appends a line, without what is private.
    pub fn line(&mut self, line: &str) -> anyhow::Result<()> {
        let written = self.file.write_all(format!("{}\n", self.private.hidden(line)).as_bytes());
        let written = written.and_then(|()| self.file.commit()); // this is for the first line; the others are appended
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        if self.synced.elapsed() > THROUGH {
            self.sync();
        }
        Ok(())
    }

    /// Syncs the file to the disk, if the system can.
    pub fn sync(&mut self) {
        let _ = self.file.sync();
        self.synced = Instant::now();
    }
}

/// Creates `wglm-report.txt`, or the first `wglm-report-N.txt` that does not exist.
fn unused() -> std::io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let name = if number == 1 { "wglm-report.txt".to_owned() } else { format!("wglm-report-{number}.txt") };
        match File::create_new(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            created => return created.map(|_| name.into()),
        }
    }
}
