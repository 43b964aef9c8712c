//! Counts of rare steps, which show that the runs reach them.

use hourglass_members::{Action, ClientAnswer, FrameBody, PartAnswer};

use crate::world::World;

impl World {
    pub fn count_action(&mut self, action: &Action) {
        let name = match action {
            Action::Send { frame, .. } => match &frame.body {
                FrameBody::Part(_) => "parts",
                FrameBody::PartAnswer { answer: PartAnswer::Late, .. } => "late parts",
                FrameBody::PartAnswer { answer: PartAnswer::Refused, .. } => "refused parts",
                FrameBody::PartAnswer { answer: PartAnswer::Busy, .. } => "busy parts",
                _ => return,
            },
            Action::Sweep(_) => "sweeps",
            Action::Append(append) if append.above.is_some() => "strays after silence",
            Action::Stop(reason) => {
                let name = format!("stops: {reason:?}");
                return self.count(&name);
            }
            Action::Answer { answer, .. } => match answer {
                ClientAnswer::Missing(_) => "503: missing openings",
                ClientAnswer::Unavailable => "503",
                ClientAnswer::StillAlive => "refused retirements",
                ClientAnswer::Rows { missing, .. } if !missing.is_empty() => "answers with a notice",
                ClientAnswer::Rows { .. } => "complete answers",
                ClientAnswer::Acked { .. } | ClientAnswer::Done => "acks",
                ClientAnswer::KeyConflict => "key conflicts",
            },
            _ => return,
        };
        self.count(name);
    }
}
