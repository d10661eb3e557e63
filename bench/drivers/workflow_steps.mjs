// Workflow SDK's Worlds, without its runtime: a step is three events (created, started, completed) and reading
// the step back. Speaks what common.py speaks. The packages are those of BENCH_MODULES.
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { createRequire } from 'node:module'
import readline from 'node:readline'
import { pathToFileURL } from 'node:url'

const [store, size, scratch] = process.argv.slice(2)
const STEPS = 50
const BARE_MS = 120
const WARM_MS = 300
const require = createRequire(path.join(process.env.BENCH_MODULES, 'driver.js'))
const load = async name => import(pathToFileURL(require.resolve(name)))
const { ulid } = require('ulid')
const out = randomBytes(Number(size) / 2).toString('hex')
const result = new TextEncoder().encode(`devl${JSON.stringify({ type: 'tool.completed', call: 'call_0001', out })}`)

async function openWorld() {
  const place = store.slice(store.indexOf(':') + 1)
  if (store.startsWith('postgresql:')) {
    const { createWorld } = await load('@workflow/world-postgres')
    const setup = require.resolve('@workflow/world-postgres').replace(/dist.*/, 'bin/setup.js')
    execFileSync(process.execPath, [setup], { env: { ...process.env, WORKFLOW_POSTGRES_URL: store } })
    return createWorld({ connectionString: store, jobPrefix: 'bench', queueConcurrency: 10, maxPoolSize: 16 })
  }
  const local = await load('@workflow/world-local')
  if (local.initDataDir) await local.initDataDir(place)
  return (local.createLocalWorld ?? local.createWorld)({ dataDir: place })
}

const world = await openWorld()
const event = (run, what) => world.events.create(run, { specVersion: world.specVersion, ...what })

async function newRun() {
  const eventData = { deploymentId: 'bench', workflowName: 'turn', input: result.slice(0, 40) }
  const made = await event(null, { eventType: 'run_created', eventData })
  const run = made.run?.runId ?? made.event.runId
  await event(run, { eventType: 'run_started' })
  return run
}

const runs = new Map()
async function step(number) {
  let at = runs.get(number)
  if (!at || at.done >= STEPS) {
    at = { run: await newRun(), done: 0 }
    runs.set(number, at)
  }
  at.done++
  const correlationId = `step_${ulid()}`
  const input = result.slice(0, 40)
  await event(at.run, { eventType: 'step_created', correlationId, eventData: { stepName: 'act', input } })
  await event(at.run, { eventType: 'step_started', correlationId })
  await event(at.run, { eventType: 'step_completed', correlationId, eventData: { stepName: 'act', result } })
  const found = await world.steps.get(at.run, correlationId, { resolveData: 'all' })
  if (found?.status !== 'completed') throw new Error(`read back ${JSON.stringify(found)}`)
}

async function measured(sessions, ms) {
  const began = performance.now()
  let steps = 0
  const session = async number => {
    while (performance.now() < began + ms) {
      await step(number)
      steps++
    }
  }
  await Promise.all(Array.from({ length: sessions }, (_, number) => session(number)))
  return [steps, (performance.now() - began) / 1000]
}

function bare() {
  const file = path.join(scratch, `bare-${process.pid}`)
  const descriptor = fs.openSync(file, 'a')
  const block = Buffer.alloc(1024, 120)
  const began = performance.now()
  let done = 0
  while (performance.now() - began < BARE_MS) {
    fs.writeSync(descriptor, block)
    fs.fdatasyncSync(descriptor)
    done++
  }
  const rate = (done * 1000) / (performance.now() - began)
  fs.closeSync(descriptor)
  fs.unlinkSync(file)
  return rate
}

await measured(1, WARM_MS)
console.log(JSON.stringify({ ready: ['step'] }))
for await (const line of readline.createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line)
  const before = bare()
  const cpu = process.cpuUsage()
  const [steps, seconds] = await measured(asked.sessions, asked.seconds * 1000)
  const used = process.cpuUsage(cpu)
  console.log(JSON.stringify({ steps, seconds, cpu: (used.user + used.system) / 1e6, bare: (before + bare()) / 2 }))
}
process.exit(0)
