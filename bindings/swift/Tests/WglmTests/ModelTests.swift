import Foundation
import Observation
import Testing
import Wglm

@Suite struct ModelTests {
    @Test func demonstration() async throws {
        _ = try await demo.value // after that, the driver has the kernels
        let steps = Shared<[LoadProgress]>([])
        let model = try await Model.demo(options: LoadOptions(context: 512)) { step in
            steps.change { $0.append(step) }
        }
        #expect(model.context == 512)
        #expect(model.name?.isEmpty == false && !model.adapter.isEmpty)
        #expect(steps.value.first?.stage == .weights)
        #expect(steps.value.contains { $0.stage == .kernels && $0.fraction == 1 })
        let verdict = try #require(model.verdict)
        let again = try await Model.demo(options: LoadOptions(verdicts: [verdict]))
        #expect(again.verdict == verdict)
    }

    @Test func cancelled() async throws {
        let (begun, begin) = AsyncStream.makeStream(of: Void.self)
        let task = Task {
            try await Model.demo { _ in begin.finish() }
        }
        for await _ in begun {}
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        await #expect(throws: CancellationError.self) {
            try await Task {
                cancelThisTask()
                return try await Model.demo()
            }.value
        }
    }

    @Test func missing() async throws {
        try await withFile { file in
            let failure = await error { _ = try await Model.load(contentsOf: file) }
            guard case .notFound(let reason) = failure else { Issue.record("\(failure as Any)"); return }
            #expect(reason.contains(file.lastPathComponent))
            let shown: any Error = try #require(failure)
            #expect(shown.localizedDescription == reason)
            #expect((shown as? LocalizedError)?.recoverySuggestion?.isEmpty == false)

            try Data("no model".utf8).write(to: file)
            let damaged = await error { _ = try await Model.load(contentsOf: file) }
            guard case .invalidFile = damaged else { Issue.record("\(damaged as Any)"); return }
            let estimate = try await Model.estimate(contentsOf: file)
            #expect(estimate.fits != true && estimate.whyNot != nil)
        }
        let failure = await error { _ = try await Model.localModel(named: "nobody/has-this") }
        guard case .notFound = failure else { Issue.record("\(failure as Any)"); return }
        let name = await error { _ = try await Model.pull("no name") }
        guard case .invalidInput = name else { Issue.record("\(name as Any)"); return }
    }

    @Test func machine() async throws {
        #expect(try await !Model.adapters().isEmpty)
        #expect(try await Model.localModels().allSatisfy { !$0.name.isEmpty && $0.url.isFileURL })
        #expect(Model.version.split(separator: ".").count == 3)
        let failure = await error { _ = try await Model.demo(options: LoadOptions(adapter: "no such adapter")) }
        guard case .noDevice = failure else { Issue.record("\(failure as Any)"); return }
    }

    @Test func embeddings() async throws {
        let texts = ["A frog is green.", "A frog is green.", "Count from 3 to 9."]
        let vectors = try await demo.value.embed(texts)
        #expect(vectors.count == 3)
        #expect(vectors[0] == vectors[1] && vectors[0] != vectors[2])
        let failure = await error { _ = try await demo.value.embed([""]) }
        guard case .invalidInput = failure else { Issue.record("\(failure as Any)"); return }
    }

    @Test func tuning() async throws {
        let shares = Shared<[Float]>([])
        let tuning = try await demo.value.tune(limit: .milliseconds(300)) { step in
            shares.change { $0.append(step.share) }
        }
        #expect(!tuning.isEmpty)
        #expect(shares.value.allSatisfy { (0...1).contains($0) })
    }
}

@MainActor @Suite struct ModelLoaderTests {
    @Test func demonstration() async throws {
        try await withFile { verdicts in
            _ = try await demo.value
            let loader = ModelLoader(verdicts: verdicts)
            guard case .idle = loader.state else { Issue.record("\(loader.state)"); return }
            loader.loadDemo(options: LoadOptions(context: 256))
            #expect(loader.model == nil)
            await loader.settle()
            let model = try #require(loader.model)
            #expect(model.context == 256 && !loader.isBusy)
            let kept = try JSONDecoder().decode([String].self, from: Data(contentsOf: verdicts))
            #expect(kept == [model.verdict])
        }
    }

    @Test func cancelled() async throws {
        _ = try await demo.value
        let loader = ModelLoader()
        loader.loadDemo()
        loader.loadDemo() // in place of the first
        loader.cancel()
        await loader.settle()
        guard case .idle = loader.state else { Issue.record("\(loader.state)"); return }
        loader.loadDemo(options: LoadOptions(context: 256))
        await loader.settle()
        #expect(loader.model != nil)
    }

    @Test func failed() async throws {
        let loader = ModelLoader()
        let changed = Shared(false)
        withObservationTracking {
            _ = loader.state
        } onChange: {
            changed.value = true
        }
        loader.load(contentsOf: URL(filePath: "/no/such/file"))
        await loader.settle()
        guard case .failed(WglmError.notFound) = loader.state else { Issue.record("\(loader.state)"); return }
        #expect(changed.value)
    }
}
