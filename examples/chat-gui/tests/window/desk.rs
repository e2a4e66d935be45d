//! A display without a screen, and the program's window on it, which the tests use as a user would.

use super::PATIENCE;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// An X server that draws to memory.
pub struct Display {
    server: Child,
    name: String,
}

impl Display {
    /// Starts a server, which chooses its display number itself.
    pub fn open() -> Self {
        let mut server = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "1100x760x24", "-nolisten", "tcp"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb starts");
        let mut number = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut number).unwrap();
        assert!(!number.trim().is_empty(), "Xvfb found no display");
        Self { server, name: format!(":{}", number.trim()) }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("DISPLAY", &self.name).env_remove("WAYLAND_DISPLAY");
        command
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Where the program puts what it downloads.
pub fn cache(data: &Path) -> PathBuf {
    data.join("hub")
}

/// The program's window.
pub struct Window<'a> {
    display: &'a Display,
    program: Child,
    status: PathBuf,
    /// The id of the window on the display.
    id: String,
    /// What the program writes to stderr.
    errors: NamedTempFile,
}

impl<'a> Window<'a> {
    /// Starts the program without a hub that it can reach, and waits for its window.
    pub fn open(display: &'a Display, data: &Path, arguments: &[&str]) -> Self {
        Self::open_with_hub(display, data, "http://127.0.0.1:1", arguments)
    }

    /// Starts the program with the address of a hub, and waits for its window. It downloads to folders in `data`, and
    /// finds other programs' models only there, as far as environment variables say where these are.
    pub fn open_with_hub(display: &'a Display, data: &Path, hub: &str, arguments: &[&str]) -> Self {
        let status = data.join("status");
        let _ = fs::remove_file(&status);
        let mut command = display.command(env!("CARGO_BIN_EXE_chat-gui"));
        command.arg("--data").arg(data).arg("--status").arg(&status).args(arguments);
        for name in ["HF_TOKEN", "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command.env("HF_ENDPOINT", hub).env("HF_TOKEN_PATH", data.join("token")).env("HF_HUB_CACHE", cache(data));
        // The fonts of the system, if a test has its own.
        let fonts = data.join("fonts.conf");
        if fonts.exists() {
            command.env("FONTCONFIG_FILE", fonts);
        }
        command.env("LLAMA_CACHE", data.join("llama")).env("OLLAMA_MODELS", data.join("ollama"));
        let errors = NamedTempFile::new().unwrap();
        let program = command.stderr(errors.reopen().unwrap()).spawn().unwrap();
        let mut window = Self { display, program, status, id: String::new(), errors };
        window.wait("a window", |_| true);
        window.id = window.xdotool(&["search", "--sync", "--onlyvisible", "--name", "wglm chat"]);
        window.xdotool(&["windowfocus", "--sync", &window.id]);
        window
    }

    /// What the program has written to stderr.
    pub fn errors(&self) -> String {
        fs::read_to_string(self.errors.path()).unwrap()
    }

    /// The status that the window reports, if it has reported any.
    fn status(&self) -> Option<Value> {
        fs::read(&self.status).ok().map(|json| serde_json::from_slice(&json).unwrap())
    }

    /// Waits until the status satisfies a condition.
    pub fn wait(&self, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let status = self.status();
            if let Some(status) = status.as_ref().filter(|status| is_so(status)) {
                return status.clone();
            }
            assert!(start.elapsed() < PATIENCE, "waited too long for {what}: {status:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Clicks on something that the window shows.
    pub fn click(&self, place: &str) {
        let status = self.wait(place, |status| status["places"][place].is_array());
        let [x, y] = [0, 1].map(|axis| status["places"][place][axis].as_f64().unwrap().round().to_string());
        self.xdotool(&["mousemove", "--window", &self.id, &x, &y]);
        self.xdotool(&["click", "1"]);
    }

    /// Writes a message and sends it.
    pub fn write(&self, text: &str) {
        self.click("input");
        self.type_in(text);
        self.press("Return");
    }

    /// Types text into the focused field.
    pub fn type_in(&self, text: &str) {
        self.xdotool(&["type", "--delay", "20", text]);
    }

    /// Presses a key, or several together.
    pub fn press(&self, key: &str) {
        self.xdotool(&["key", key]);
    }

    /// Changes the size of the window.
    pub fn resize(&self, width: u32, height: u32) {
        self.xdotool(&["windowsize", "--sync", &self.id, &width.to_string(), &height.to_string()]);
    }

    /// Saves a picture of the window, if pictures are requested.
    pub fn picture(&self, name: &str) {
        if let Some(folder) = std::env::var_os("WGLM_PICTURES") {
            std::thread::sleep(Duration::from_millis(700));
            let path = Path::new(&folder).join(name).with_extension("png");
            let mut import = self.display.command("import");
            assert!(import.args(["-window", "root"]).arg(path).status().unwrap().success());
        }
    }

    /// Closes the window as a user would, and waits for the program's end.
    pub fn close(mut self) {
        self.press("ctrl+q");
        let start = Instant::now();
        while self.program.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "the program does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(self.program.wait().unwrap().success());
    }

    fn xdotool(&self, arguments: &[&str]) -> String {
        let output = self.display.command("xdotool").args(arguments).output().expect("xdotool starts");
        assert!(output.status.success(), "xdotool {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        eprint!("{}", self.errors());
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
