//! `chat`: a conversation on the terminal.

use super::args::TalkArgs;
use super::output::Aside;
use super::{failure, model, run};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use wglm::Chat;
use wglm::text::Message;

const HELP: &str = "\
/clear             starts over
/reasoning on|off  thinks before answering, or does not
/exit              ends; so does Ctrl-D. Ctrl-C stops a reply.";

pub fn chat(args: TalkArgs) -> anyhow::Result<()> {
    let file = model::open(args.model.file.model.as_deref())?;
    let options = run::options(&file, &args.sampling, true)?;
    let model = model::load(&file, &args.model)?;
    let mut chat = Chat::new(&model)?;
    run::prepare(&mut chat, &args.reply, options);
    let aside = Aside::new();
    aside.line(format_args!(
        "{}, {} tokens of context; /help for help",
        model::name(&args.model.file),
        chat.session().context()
    ));
    let mut editor = DefaultEditor::new()?;
    let interrupt = run::Interrupt::listen()?;
    loop {
        let line = match editor.readline("> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        editor.add_history_entry(line)?;
        if let Some(command) = line.strip_prefix('/') {
            if obey(&mut chat, command, args.reply.system_prompt.as_deref(), &aside) == Next::End {
                return Ok(());
            }
            continue;
        }
        let cancel = interrupt.next();
        let sent = chat.send(line).map_err(anyhow::Error::from);
        let shown = sent.and_then(|reply| run::show(reply.with_cancel(&cancel)));
        // What was asked in vain is asked again in other words: the model is not to read both.
        chat.truncate(chat.messages().len() - chat.unanswered().len());
        match shown {
            Err(error) if super::is_broken_pipe(&error) => return Err(error),
            Err(error) => failure::tell(&error),
            Ok(_) => {}
        }
    }
}

#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    End,
}

fn obey(chat: &mut Chat, command: &str, system: Option<&str>, aside: &Aside) -> Next {
    match command {
        "exit" | "quit" => return Next::End,
        "clear" => {
            chat.clear();
            system.into_iter().for_each(|text| chat.push(Message::system(text)));
        }
        "reasoning on" => chat.reasoning = Some(true),
        "reasoning off" => chat.reasoning = Some(false),
        "help" => aside.line(format_args!("{HELP}")),
        other => aside.line(format_args!("no command /{other}\n{HELP}")),
    }
    Next::GoOn
}
