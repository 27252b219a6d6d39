// Calls over gRPC, from the project's own .proto files.

import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { must } from './rules.mjs'

// The packages stand where "make testdeps" puts them.
const require = createRequire(new URL('../../.cache/node/', import.meta.url))
const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')

const shape = { keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true }

const own = loader.loadSync(
  ['cua/daemon/v1/fork_batch.proto', 'cua/daemon/v1/sandboxes.proto', 'cua/daemon/v1/daemon.proto', 'brood/v1/exec.proto', 'brood/v1/batches.proto'],
  { ...shape, includeDirs: [fileURLToPath(new URL('../../api', import.meta.url))] },
)

// Health and reflection are served beside our own services; their messages,
// as far as they are used here.
const field = (type, id, more) => ({ type, id, ...more })
const standard = loader.fromJSON({
  nested: {
    grpc: {
      nested: {
        health: { nested: { v1: { nested: {
          HealthCheckRequest: { fields: { service: field('string', 1) } },
          HealthCheckResponse: {
            fields: { status: field('Status', 1) },
            nested: { Status: { values: { UNKNOWN: 0, SERVING: 1, NOT_SERVING: 2, SERVICE_UNKNOWN: 3 } } },
          },
          Health: { methods: { Check: { requestType: 'HealthCheckRequest', responseType: 'HealthCheckResponse' } } },
        } } } },
        reflection: { nested: { v1: { nested: {
          ServerReflectionRequest: {
            oneofs: { ask: { oneof: ['file_containing_symbol', 'list_services'] } },
            fields: { file_containing_symbol: field('string', 4), list_services: field('string', 7) },
          },
          Service: { fields: { name: field('string', 1) } },
          Services: { fields: { service: field('Service', 1, { rule: 'repeated' }) } },
          Files: { fields: { file_descriptor_proto: field('bytes', 1, { rule: 'repeated' }) } },
          ServerReflectionResponse: {
            oneofs: { answer: { oneof: ['file_descriptor_response', 'list_services_response'] } },
            fields: { file_descriptor_response: field('Files', 4), list_services_response: field('Services', 6) },
          },
          ServerReflection: { methods: { ServerReflectionInfo: {
            requestType: 'ServerReflectionRequest', requestStream: true, responseType: 'ServerReflectionResponse', responseStream: true,
          } } },
        } } } },
      },
    },
  },
}, shape)

const services = ['cua.daemon.v1.ForkBatchService', 'cua.daemon.v1.SandboxService', 'cua.daemon.v1.DaemonService', 'brood.v1.ExecService', 'brood.v1.BatchService']

/** The method that a path means; the seed's own path for batches has none in a .proto. */
function method(path) {
  const [, service, name] = path.split('/')
  const found = (own[service] ?? standard[service])?.[name]
  return found ?? own['cua.daemon.v1.ForkBatchService'][name]
}

/** Calls is one connection to a daemon. */
export class Calls {
  constructor(target) {
    this.token = target.token
    this.client = new grpc.Client(target.grpc, grpc.credentials.createInsecure())
  }

  close() {
    this.client.close()
  }

  /** A function that turns the bytes of a path's answer into an object. */
  decoder(path) {
    return method(path).responseDeserialize
  }

  #metadata(headers) {
    const metadata = new grpc.Metadata()
    if (this.token) metadata.set('authorization', `Bearer ${this.token}`)
    for (const [k, v] of Object.entries(headers)) metadata.set(k, v)
    return metadata
  }

  #options() {
    return { deadline: Date.now() + 120_000 }
  }

  /** One request, one answer. */
  unary(path, request) {
    const { requestSerialize, responseDeserialize } = method(path)
    return new Promise((resolve, reject) => {
      this.client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, this.#metadata({}), this.#options(),
        (err, answer) => (err ? reject(err) : resolve(answer)))
    })
  }

  /** One request, a stream of answers; on.header and on.event see them in order. */
  stream(path, request, headers, on) {
    const { requestSerialize, responseDeserialize } = method(path)
    const call = this.client.makeServerStreamRequest(path, requestSerialize, responseDeserialize, request, this.#metadata(headers), this.#options())
    return this.#follow(call, on)
  }

  #follow(call, on) {
    return new Promise((resolve, reject) => {
      const guarded = (f) => (value) => {
        try {
          f?.(value)
        } catch (err) {
          reject(err)
          call.cancel()
        }
      }
      call.on('metadata', guarded(on.header))
      call.on('data', guarded(on.event))
      call.on('error', reject)
      call.on('end', resolve)
    })
  }

  /** The daemon says that it serves. */
  async isServing() {
    const answer = await this.unary('/grpc.health.v1.Health/Check', { service: '' })
    must(answer.status === 'SERVING', 'health says', answer.status)
  }

  /** Reflection lists the services and knows the contract. */
  async describesItself() {
    const path = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'
    const { requestSerialize, responseDeserialize } = method(path)
    const call = this.client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, this.#metadata({}), this.#options())
    const answers = []
    const followed = this.#follow(call, { event: (answer) => answers.push(answer) })
    call.write({ list_services: '*' })
    call.write({ file_containing_symbol: services[0] })
    call.end()
    await followed
    must(answers.length === 2, 'reflection gave answers, not 2:', answers.length)
    const listed = answers[0].list_services_response?.service.map((s) => s.name) ?? []
    for (const name of services) must(listed.includes(name), `reflection does not list ${name}:`, listed)
    const files = answers[1].file_descriptor_response?.file_descriptor_proto ?? []
    must(files.some((file) => file.includes('ForkSandboxBatchRequest')), 'reflection does not describe ForkSandboxBatch')
  }
}
