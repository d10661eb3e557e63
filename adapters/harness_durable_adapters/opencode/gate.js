// The barrier: the harness awaits these before and after each tool. It has no imports, since the harness would
// install packages for them. The lines before this one define TOKEN, SESSION and TOOLS.
const GATE = process.env.HARNESS_DURABLE_GATE
const SECRETS = ["OPENCODE_SERVER_PASSWORD", "HARNESS_DURABLE_GATE"]
const TRIES = 6

const wait = (ms) => new Promise((done) => setTimeout(done, ms))

// A worker that dies leaves the question with the keeper, or resets it: then it is asked again. Whatever else
// goes wrong is thrown, and the tool does not run. No time-out: a person may be asked.
const ask = async (route, question) => {
  for (let attempt = 1; ; attempt++) {
    let response
    try {
      response = await fetch(GATE + route, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${TOKEN}` },
        body: JSON.stringify(question),
        timeout: false,
      })
      if (response.ok) return await response.json()
    } catch (error) {
      if (attempt === TRIES) throw new Error(`not run: its intent could not be recorded (${error})`)
      await wait(200 * attempt)
      continue
    }
    throw new Error(`not run: its intent could not be recorded (${response.status})`)
  }
}

const declared = (name, description, execute) => ({ description, args: { _: { type: "string" } }, execute })

const custom = Object.fromEntries(
  Object.entries(TOOLS).map(([name, tool]) => [
    name,
    declared(name, tool.description, async (args, context) => {
      const answer = await ask("tool", { tool: name, sessionID: context.sessionID, callID: context.callID, args })
      if (answer.isError) throw new Error(answer.text)
      return answer.text
    }),
  ]),
)

export const HarnessDurable = async () => ({
  "tool.execute.before": async (call, { args }) => {
    const answer = await ask("before", { ...call, args })
    if (answer.deny) throw new Error(answer.deny)
  },
  "tool.execute.after": async (call, output) => {
    await ask("after", { tool: call.tool, sessionID: call.sessionID, callID: call.callID, output })
  },
  // What a subagent has heard is in the log before it asks its model: else nobody could go on with it.
  "chat.params": async ({ sessionID }) => {
    if (sessionID !== SESSION) await ask("model", { sessionID })
  },
  "tool.definition": async ({ toolID }, definition) => {
    if (TOOLS[toolID]) definition.jsonSchema = TOOLS[toolID].schema
  },
  "shell.env": async (_, { env }) => {
    for (const name of SECRETS) env[name] = ""
    env.TMPDIR = "/tmp"
  },
  tool: { ...custom, durable_barrier: declared("durable_barrier", "", async () => "") },
})
